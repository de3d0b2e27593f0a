"""multilabel_margin_loss as a formula that autograd differentiates.

In: tensors with classes as their last dimension. Out: the loss. Forbidden: computing on the host.

torch traces the operator by a decomposition of its own, which takes the places behind the end of a list of targets for
targets (2.11 to 2.13), and before any kernel of a device is asked. Hence these kernels also stand in autograd's place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_NONE, _MEAN = 0, 1
"""ATen's numbers of reductions (aten/src/ATen/core/Reduction.h)."""


def _multilabel_margin_loss(
    self: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN
) -> torch.Tensor:
    """``sum over targets t, others d of max(0, 1 - x[t] + x[d]) / classes``; targets end at the first -1."""
    if self.dim() > 2 or target.shape != self.shape or (self.dim() and self.shape[-1] == 0):
        raise RuntimeError(
            "multilabel_margin_loss: expected a vector or matrix of classes and targets of the same "
            f"shape, but got {list(self.shape)} and {list(target.shape)}"
        )
    rows = self.reshape(-1, self.shape[-1] if self.dim() else 1)
    listed = target.reshape(rows.shape)
    counts = ((listed < 0).to(torch.int64).cumsum(1) == 0).unsqueeze(2)
    listed = listed.clamp_min(0)
    number = torch.arange(rows.shape[1], device=rows.device)
    is_target = ((listed.unsqueeze(2) == number) & counts).any(1).unsqueeze(1)
    short = torch.relu(1 - rows.gather(1, listed).unsqueeze(2) + rows.unsqueeze(1))
    loss = torch.where(counts & ~is_target, short, 0.0).sum((1, 2)) / rows.shape[1]
    if reduction == _NONE:
        return loss if self.dim() == 2 else loss.reshape(())
    return loss.mean() if reduction == _MEAN else loss.sum()


AUTOGRAD_KERNELS: dict[str, Callable[..., Any]] = {
    "multilabel_margin_loss": _multilabel_margin_loss
}
"""ATen kernels of this file, for the device and for autograd on it."""
