"""Making tensors on ``vk``: buffers of the runtime, handed to torch through DLPack.

In: shape, strides, dtype, device. Out: uninitialised torch tensors with real storages.
Forbidden: filling or copying data; caching tensors.

DLPack's device type kDLExtDev is PrivateUse1 in torch. The capsule's deleter returns the block to
the runtime's allocator when the storage dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import torch

from torchvk_compile.device import physical
from torchvk_compile.errors import OutOfMemoryError

DLPACK_TYPES = MappingProxyType(
    {
        torch.int8: (0, 8),
        torch.int16: (0, 16),
        torch.int32: (0, 32),
        torch.int64: (0, 64),
        torch.uint8: (1, 8),
        torch.uint16: (1, 16),
        torch.uint32: (1, 32),
        torch.uint64: (1, 64),
        torch.float16: (2, 16),
        torch.float32: (2, 32),
        torch.float64: (2, 64),
        torch.bfloat16: (4, 16),
        torch.complex32: (5, 32),
        torch.complex64: (5, 64),
        torch.complex128: (5, 128),
        torch.bool: (6, 8),
        torch.float8_e4m3fn: (10, 8),
        torch.float8_e4m3fnuz: (11, 8),
        torch.float8_e5m2: (12, 8),
        torch.float8_e5m2fnuz: (13, 8),
        torch.float8_e8m0fnu: (14, 8),
    }
)
"""DLPack's type code and bits (dlpack.h, DLDataTypeCode) of every dtype a vk tensor can have."""

tensor_from_capsule = torch._C._from_dlpack
"""A torch tensor from a runtime capsule; the capsule is used up."""


def device_index(device: torch.device | None) -> int:
    """Index of a vk device; the current one if it has none. Raises VulkanError if it is missing."""
    if device is None or device.index is None:
        return physical.current_device()
    return device.index


def empty(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, index: int
) -> torch.Tensor:
    """An uninitialised tensor on ``vk:<index>``.

    Args:
        shape: extents, none negative.
        strides: in elements, as many as extents, none negative.

    Raises:
        OutOfMemoryError: device memory is exhausted.
        RuntimeError: the dtype has no representation on the device.
    """
    try:
        code, bits = DLPACK_TYPES[dtype]
    except KeyError:
        raise RuntimeError(
            f"tensors of dtype {dtype} cannot live on the vk device; convert them first, for instance "
            "with .dequantize() or .to(torch.float32)"
        ) from None
    last = 0
    for extent, stride in zip(shape, strides, strict=True):
        if extent < 1:
            if extent < 0:
                raise RuntimeError(
                    f"cannot make a tensor with negative dimension {extent}: {shape}"
                )
            nbytes = 0
            break
        last += (extent - 1) * stride
    else:
        nbytes = (last + 1) * (bits >> 3)
    if nbytes >= _ADDRESSES:
        raise OutOfMemoryError(
            f"a tensor of shape {tuple(shape)} and dtype {dtype} would take {nbytes / 2**60:.0f} EiB, "
            "more than can be addressed. Check the sizes it is made from; a product of them may be "
            "meant where one of them is, or a size may be negative or uninitialised"
        )
    device = physical.runtime_device(index)
    return tensor_from_capsule(device.empty(tuple(shape), tuple(strides), code, bits, nbytes))


_ADDRESSES = 1 << 63
"""Bytes that 64-bit signed sizes and offsets can tell apart."""


def empty_contiguous(shape: Sequence[int], dtype: torch.dtype, index: int) -> torch.Tensor:
    """`empty` with row-major strides."""
    return empty(shape, contiguous_strides(shape), dtype, index)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements; an extent of 0 counts as 1, as in torch."""
    step = 1
    reversed_strides = []
    for extent in reversed(shape):
        reversed_strides.append(step)
        step *= extent or 1
    return tuple(reversed(reversed_strides))


def ordered_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides whose dimensions get wider along `order` (innermost dimension first)."""
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= shape[dimension] or 1
    return tuple(strides)


def dense_elements(tensor: torch.Tensor) -> int | None:
    """Number of elements if they fill one gapless range of memory in some order, else None."""
    count = tensor.numel()
    if tensor.is_contiguous() or count == 0:
        return count
    expected = 1
    pairs = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, extent in pairs:
        if extent == 1:
            continue
        if stride != expected:
            return None
        expected *= extent
    return count


_CHANNELS_LAST_ORDER = {
    torch.channels_last: (1, 3, 2, 0),
    torch.channels_last_3d: (1, 4, 3, 2, 0),
}


def _empty_memory_format(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    _check_options(layout, pin_memory)
    order = _CHANNELS_LAST_ORDER.get(memory_format) if memory_format is not None else None
    if order is None:
        strides = contiguous_strides(size)
    elif len(order) != len(size):
        raise RuntimeError(f"required rank {len(order)} tensor to use {memory_format} format")
    else:
        strides = ordered_strides(size, order)
    return empty(size, strides, dtype or torch.get_default_dtype(), device_index(device))


def _empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    _check_options(layout, pin_memory)
    return empty(size, stride, dtype or torch.get_default_dtype(), device_index(device))


def _new_empty_strided(
    self: torch.Tensor,
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    return torch.empty_strided(
        size, stride, dtype=dtype or self.dtype, layout=layout, device=device or self.device
    )


def _check_options(layout: torch.layout | None, pin_memory: bool | None) -> None:
    if layout is not None and layout is not torch.strided:
        raise RuntimeError(f"vk tensors are strided; {layout} is not supported")
    if pin_memory:
        raise RuntimeError("only CPU tensors can be pinned, not vk tensors")


KERNELS = {
    "empty.memory_format": _empty_memory_format,
    "empty_strided": _empty_strided,
    "new_empty_strided": _new_empty_strided,
}
"""ATen kernels of this file."""
