"""Shapes of results that torch cannot tell, because it has no shape function for the operator.

In: meta tensors. Out: meta tensors. Forbidden: operators that torch has a shape function for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _geqrf(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if self.dim() < 2:
        raise RuntimeError(
            f"torch.geqrf: input must have at least 2 dimensions, but has {self.dim()}"
        )
    *batch, m, n = self.shape
    # Columns of a matrix lie together, as LAPACK returns them.
    factors = self.new_empty(*batch, n, m).mT
    return factors, self.new_empty(*batch, min(m, n))


def _like_second(grad: torch.Tensor, self: torch.Tensor, *arguments: object) -> torch.Tensor:
    return torch.empty_like(self)


KERNELS: dict[str, Callable[..., Any]] = {
    "geqrf": _geqrf,
    "fractional_max_pool3d_backward": _like_second,
    "multi_margin_loss_backward": _like_second,
}
"""Shape functions of this file; torch's own, where a release has one, go first."""
