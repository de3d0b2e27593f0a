"""The exponential of matrices, by scaling and squaring.

In: aten.linalg_matrix_exp. Out: a Taylor polynomial in products, squarings in one launch. Forbidden: reading the norm
back.
"""

from __future__ import annotations

import math

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.linalg.batches import flat, require_real, unflat

_DEGREE = 16
_LARGEST_NORM = {torch.float32: 2.0, torch.float64: 0.75}
"""Norms up to which the polynomial's remainder, norm^17 / 17! and less, is below half a unit in the last place."""


_NARROW = (torch.float16, torch.bfloat16)


def _linalg_matrix_exp(a: torch.Tensor) -> torch.Tensor:
    if a.dtype in _NARROW:
        return _linalg_matrix_exp(a.float()).to(a.dtype)
    require_real("aten.linalg_matrix_exp", a)
    if a.numel() == 0:
        return a.clone()
    x = flat(a)
    norm = x.abs().sum(-2).amax(-1)
    steps = torch.ceil(torch.log2(norm / _LARGEST_NORM[a.dtype])).clamp(min=0)
    steps = torch.where(torch.isfinite(norm), steps, 0)
    scaled = x * torch.exp2(-steps)[:, None, None]
    powers = torch.ops.torchvk.squaring(_taylor(scaled), steps.to(torch.int32))
    return unflat(powers[:, 0], a.shape[:-2])


def _taylor(x: torch.Tensor) -> torch.Tensor:
    """The sum of x^i / i! up to `_DEGREE`, in groups of four terms (Paterson and Stockmeyer, 1973)."""
    x2 = x @ x
    x3 = x2 @ x
    x4 = x2 @ x2
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    total = x4 / math.factorial(_DEGREE)
    for first in range(_DEGREE - 4, -1, -4):
        group = identity / math.factorial(first)
        for i, power in enumerate((x, x2, x3), 1):
            group = group + power / math.factorial(first + i)
        total = total + group if first == _DEGREE - 4 else total @ x4 + group
    return total


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(torch.ops.aten.linalg_matrix_exp.default, _linalg_matrix_exp)
