"""`fill_` and `zero_`: a pattern written by the transfer queue where the tensor has no gaps.

In: a vk tensor and a number. Out: the same tensor, filled.
Forbidden: touching the gaps of a strided view; those go through a one-op graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchvk_compile.audit import events
from torchvk_compile.device import eager, physical, tensors
from torchvk_compile.profiling import spans

_aten = torch.ops.aten


def _fill_scalar(self: torch.Tensor, value: bool | int | float | complex) -> torch.Tensor:
    # torch.full also raises torch's own error for a number the dtype cannot hold.
    element = torch.full((1,), value, dtype=self.dtype, device="cpu").view(torch.uint8)
    return _fill(self, bytes(element.tolist()), _aten.fill_.Scalar, (value,))


def _fill_tensor(self: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if value.dim() != 0:
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value.dim()} dimensions."
        )
    if value.device.type == "cpu":
        return _fill_scalar(self, value.item())
    return self.copy_(value)


def _zero(self: torch.Tensor) -> torch.Tensor:
    return _fill(self, b"\0", _aten.zero_.default, ())


def _fill(
    target: torch.Tensor, pattern: bytes, op: torch._ops.OpOverload, operands: tuple[Any, ...]
) -> torch.Tensor:
    count = tensors.dense_elements(target)
    if count is None:
        return eager.run(op, (target, *operands), {})
    if count:
        if events.listeners:
            events.transferred("fill", count * target.itemsize)
        device = physical.runtime_device(target.device.index)
        with spans.span("transfer", "fill", nbytes=count * target.itemsize):
            device.fill(target.data_ptr(), count * target.itemsize, pattern)
    return target


KERNELS: dict[str, Callable[..., Any]] = {
    "fill_.Scalar": _fill_scalar,
    "fill_.Tensor": _fill_tensor,
    "zero_": _zero,
}
"""ATen kernels of this file."""
