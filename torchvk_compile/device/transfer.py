"""Copies: host to device and back, between devices, and on one device; reading a scalar.

In: pairs of tensors of any layout and dtype, at least one on ``vk``. Out: the same values
elsewhere.
Forbidden: reading device memory while work is pending; dereferencing a device address.

Bytes cross the bus densely. Between host and device, the dtype is converted on the host and strides
are sorted out on whichever side is dense already; a strided device tensor is written and read
through one-op graphs (`eager.run`), so its gaps are never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from torchvk_compile.audit import events
from torchvk_compile.device import aliasing, eager, physical, tensors
from torchvk_compile.profiling import spans

_aten = torch.ops.aten

_SMALL_SPAN_BYTES = 1 << 16
"""Up to here the whole span of a strided device tensor is fetched and picked apart on the host."""


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if self.is_conj() or self.is_neg():
        # The view without its bit takes the value of which it will show the conjugate or negative.
        if self.is_conj():
            _copy(self.conj(), src.conj())
        else:
            _copy(torch._neg_view(self), -src)
        return self
    if src.is_conj() or src.is_neg():
        src = _without_lazy_bits(src)
    if self is src or self.numel() == 0:
        src.expand(self.shape)
        return self
    if src.shape != self.shape:
        src = src.expand(self.shape)
    eager.refuse_self_overlap(self)
    if self.untyped_storage()._cdata == src.untyped_storage()._cdata:
        aliasing.refuse_overlap(_aten.copy_.default, self, src)
    if self.device.type == "cpu":
        _download(self, src)
    elif src.device.type == "cpu":
        _upload(self, src)
    elif src.device == self.device:
        _copy_on_device(self, src)
    elif src.device.type == self.device.type:
        _upload(self, to_host(src))
    else:
        raise RuntimeError(f"cannot copy between {src.device} and {self.device}")
    return self


def _without_lazy_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with a pending conjugation or negation carried out."""
    if tensor.device.type == "cpu":
        return tensor.resolve_conj().resolve_neg()
    if tensor.is_conj():
        parts = torch.view_as_real(_without_lazy_bits(tensor.conj())).clone()
        parts[..., 1].neg_()
        return torch.view_as_complex(parts)
    if tensor.is_neg():
        return torch.neg(torch._neg_view(tensor))
    return tensor


def to_host(source: torch.Tensor) -> torch.Tensor:
    """A CPU tensor with the values, shape and (where dense) strides of a vk tensor. Waits."""
    if tensors.dense_elements(source) is not None:
        host = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device="cpu")
        _fetch(source, host.data_ptr(), host.numel() * host.itemsize)
        return host
    strides = source.stride()
    span = 1 + sum((n - 1) * s for n, s in zip(source.shape, strides, strict=True))
    if span * source.itemsize <= _SMALL_SPAN_BYTES or span <= 2 * source.numel():
        host = torch.empty(span, dtype=source.dtype, device="cpu")
        _fetch(source, host.data_ptr(), span * host.itemsize)
        return host.as_strided(source.shape, strides)
    dense = tensors.empty_contiguous(source.shape, source.dtype, source.device.index)
    _copy_on_device(dense, source)
    return to_host(dense)


def _fetch(source: torch.Tensor, host_address: int, nbytes: int) -> None:
    if nbytes:
        if events.listeners:
            events.transferred("download", nbytes)
        device = physical.runtime_device(source.device.index)
        with spans.span("transfer", "download", nbytes=nbytes):
            device.download(source.data_ptr(), host_address, nbytes)


def _download(target: torch.Tensor, source: torch.Tensor) -> None:
    if (
        target.dtype is source.dtype
        and target.stride() == source.stride()
        and tensors.dense_elements(source) is not None
    ):
        _fetch(source, target.data_ptr(), source.numel() * source.itemsize)
    else:
        target.copy_(to_host(source))


def _upload(target: torch.Tensor, source: torch.Tensor) -> None:
    index = target.device.index
    if tensors.dense_elements(target) is None:
        dense = tensors.empty_contiguous(target.shape, target.dtype, index)
        _upload(dense, source)
        _copy_on_device(target, dense)
        return
    source = source.detach()
    if source.dtype is not target.dtype or source.stride() != target.stride():
        staged = torch.empty_strided(
            target.shape, target.stride(), dtype=target.dtype, device="cpu"
        )
        source = staged.copy_(source)
    nbytes = source.numel() * source.itemsize
    if events.listeners:
        events.transferred("upload", nbytes)
    device = physical.runtime_device(index)
    with spans.span("transfer", "upload", nbytes=nbytes):
        device.upload(target.data_ptr(), source.data_ptr(), nbytes)


def _copy_on_device(target: torch.Tensor, source: torch.Tensor) -> None:
    if target.dtype is source.dtype and target.stride() == source.stride():
        if target.data_ptr() == source.data_ptr():
            return
        count = tensors.dense_elements(target)
        if count is not None:
            nbytes = count * target.itemsize
            if events.listeners:
                events.transferred("copy", nbytes)
            device = physical.runtime_device(target.device.index)
            with spans.span("transfer", "copy", nbytes=nbytes):
                device.copy(target.data_ptr(), source.data_ptr(), nbytes)
            return
    eager.run(_aten.copy_.default, (target, source), {})


def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return _copy(dst, self, non_blocking)


def _copy_from_and_resize(self: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    return _copy(dst.resize_(self.shape), self)


def _to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    if layout is not None and layout is not torch.strided:
        raise RuntimeError(f"vk tensors are strided; cannot convert one to {layout}")
    # An uninitialised parameter of a lazy module hides its (zero) size; what it holds moves all the same.
    if isinstance(self, (UninitializedParameter, UninitializedBuffer)):
        self = self.data
    dtype = dtype or self.dtype
    device = device or self.device
    if memory_format in (None, torch.preserve_format):
        if tensors.dense_elements(self) is not None:
            strides = self.stride()
        else:
            strides = torch.empty_like(self, device="meta").stride()
    else:
        strides = torch.empty(self.shape, device="meta", memory_format=memory_format).stride()
    if device.type == "vk":
        index = tensors.device_index(device)
        target = tensors.empty(self.shape, strides, dtype, index)
    else:
        target = torch.empty_strided(self.shape, strides, dtype=dtype, device=device)
    return _copy(target, self, non_blocking)


def _clone(self: torch.Tensor, *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    return _to_copy(self, memory_format=memory_format)


def _local_scalar_dense(self: torch.Tensor) -> bool | int | float | complex:
    host = torch.empty((), dtype=self.dtype, device="cpu")
    _fetch(self, host.data_ptr(), host.itemsize)
    return host.item()


def _equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    if self.shape != other.shape:
        return False
    if self.device != other.device:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found {self.device} and "
            f"{other.device} in aten.equal"
        )
    if self.dtype is not other.dtype:
        raise RuntimeError(
            f"Expected object of data type {self.dtype} but got data type {other.dtype} for "
            "argument 'other' in call to equal"
        )
    return self.numel() == 0 or bool((self == other).all().item())


KERNELS: dict[str, Callable[..., Any]] = {
    "copy_": _copy,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_to_copy": _to_copy,
    "clone": _clone,
    "_local_scalar_dense": _local_scalar_dense,
    "equal": _equal,
}
"""ATen kernels of this file."""
