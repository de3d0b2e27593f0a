"""The gradient of the margin loss over classes, which torch has only as a kernel of its own.

In: ATen's arguments. Out: pointwise operations and sums. Forbidden: Slang text.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.decomposed import route_decomposition

_aten = torch.ops.aten
_MEAN = 1
"""ATen's number for ``reduction="mean"`` (aten/src/ATen/core/Reduction.h)."""


def register_margin_loss() -> None:
    """Route this gradient of vk tensors here."""
    route_decomposition(_aten.multi_margin_loss_backward.default, _gradient)


def _share(grad: torch.Tensor, x: torch.Tensor, reduction: int) -> torch.Tensor:
    """What one violated margin adds to a gradient: (1, 1) or (samples, 1)."""
    divisor = x.shape[1] * (x.shape[0] if reduction == _MEAN else 1)
    return grad.reshape(-1, 1) / divisor


def _gradient(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    p: float,
    margin: float,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    """Gradient of ``sum over d of weight[t] * max(0, margin - x[t] + x[d]) ** p / classes``, for p of 1 and 2."""
    rows = x.reshape(-1, x.shape[-1] if x.dim() else 1)
    own = target.reshape(-1, 1)
    number = torch.arange(rows.shape[1], device=x.device)
    short = margin - rows.gather(1, own) + rows
    slope = torch.where(short > 0, 1.0 if p == 1 else 2 * short, 0.0).to(x.dtype)
    if weight is not None:
        slope = slope * _aten.index.Tensor(weight, [own])
    slope = torch.where(number == own, 0.0, slope) * _share(grad, rows, reduction)
    result = torch.where(number == own, -slope.sum(1, keepdim=True), slope)
    return result.reshape(x.shape)
