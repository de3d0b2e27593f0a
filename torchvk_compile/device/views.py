"""Views, `set_` and `resize_`: operators that change metadata and touch no element.

In: vk tensors. Out: tensors on the same storage, or the same tensor with another geometry.
Forbidden: device work, except that `resize_` moves the old bytes when a storage has to grow.

torch's own CPU kernels for views only compute sizes and strides, so they are redispatched to with
the CPU key; the result keeps the storage, dtype and dispatch keys of the vk tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchvk_compile.audit import events
from torchvk_compile.device import physical, tensors
from torchvk_compile.profiling import spans

_aten = torch.ops.aten
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _as_strided(
    self: torch.Tensor,
    size: list[int],
    stride: list[int],
    storage_offset: int | None = None,
    _redispatch: Callable[..., torch.Tensor] = _aten.as_strided.default.redispatch,
) -> torch.Tensor:
    return _redispatch(_CPU, self, size, stride, storage_offset)


def _view(
    self: torch.Tensor,
    size: list[int],
    _redispatch: Callable[..., torch.Tensor] = _aten.view.default.redispatch,
) -> torch.Tensor:
    return _redispatch(_CPU, self, size)


def _reshape_alias(
    self: torch.Tensor,
    size: list[int],
    stride: list[int],
    _redispatch: Callable[..., torch.Tensor] = _aten._reshape_alias.default.redispatch,
) -> torch.Tensor:
    return _redispatch(_CPU, self, size, stride)


def _metadata_kernel(op: torch._ops.OpOverload) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return op.redispatch(_CPU, *args, **kwargs)

    return kernel


def _set_empty(self: torch.Tensor) -> torch.Tensor:
    fresh = tensors.empty((0,), (1,), self.dtype, self.device.index)
    return self.set_(fresh.untyped_storage(), 0, (0,), (1,))


def _resize(
    self: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """Change the shape; a storage that is too small is replaced by a larger one.

    A DLPack storage cannot grow in place. The tensor moves to a new storage that starts with the
    old bytes; other tensors on the old storage keep it, where on the CPU they would share the grown
    one.
    """
    if memory_format in (None, torch.contiguous_format):
        strides = tensors.contiguous_strides(size)
    elif memory_format is torch.preserve_format:
        raise RuntimeError(f"unsupported memory format option {memory_format} for resize_")
    else:
        strides = torch.empty(size, device="meta", memory_format=memory_format).stride()
    count = 1
    for extent in size:
        count *= extent
    offset = self.storage_offset()
    needed = (offset + count) * self.itemsize if count else 0
    storage = self.untyped_storage()
    if needed > storage.nbytes():
        storage = _grown(self, needed)
    return self.set_(storage, offset, size, strides)


def _grown(tensor: torch.Tensor, nbytes: int) -> torch.UntypedStorage:
    index = tensor.device.index
    old = tensor.untyped_storage()
    new = tensors.empty((nbytes,), (1,), torch.uint8, index).untyped_storage()
    if old.nbytes():
        if events.listeners:
            events.transferred("copy", old.nbytes())
        device = physical.runtime_device(index)
        with spans.span("transfer", "copy", nbytes=old.nbytes()):
            device.copy(new.data_ptr(), old.data_ptr(), old.nbytes())
    return new


def _is_set_to(self: torch.Tensor, tensor: torch.Tensor) -> bool:
    return (
        self.untyped_storage()._cdata == tensor.untyped_storage()._cdata
        and self.storage_offset() == tensor.storage_offset()
        and self.shape == tensor.shape
        and self.stride() == tensor.stride()
    )


def _has_compatible_shallow_copy_type(self: torch.Tensor, from_: torch.Tensor) -> bool:
    """Whether ``self.data = from_`` may replace a CPU tensor by a vk tensor, or the reverse.

    torch knows such pairs only for devices in its own list (CPU and CUDA, …). With this answer
    ``module.to("vk")`` assigns to ``parameter.data`` as it does for CUDA: parameters stay the same
    objects, tied weights stay tied and an optimizer made before the move stays valid.
    """
    return all(
        tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "vk")
        and torch._C._dispatch_keys(tensor).has(_DENSE_KEY[tensor.device.type])
        for tensor in (self, from_)
    )


_DENSE_KEY = {"cpu": torch._C.DispatchKey.CPU, "vk": torch._C.DispatchKey.PrivateUse1}


KERNELS: dict[str, Callable[..., Any]] = {
    "as_strided": _as_strided,
    "view": _view,
    "_reshape_alias": _reshape_alias,
    "resize_": _resize,
    "set_": _set_empty,
    "is_set_to": _is_set_to,
    "_has_compatible_shallow_copy_type": _has_compatible_shallow_copy_type,
    **{
        name: _metadata_kernel(
            getattr(getattr(_aten, name.partition(".")[0]), overload or "default")
        )
        for name, overload in {
            "as_strided_": "",
            "unfold": "",
            "view_as_real": "",
            "view_as_complex": "",
            "set_.source_Storage": "source_Storage",
            "set_.source_Storage_storage_offset": "source_Storage_storage_offset",
            "set_.source_Tensor": "source_Tensor",
        }.items()
    },
}
"""ATen kernels of this file."""
