"""Factors of symmetric matrices that need not be definite, and solutions from them.

In: aten.linalg_ldl_factor_ex and aten.linalg_ldl_solve. Out: a launch each. Forbidden: pivoting unlike LAPACK.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.linalg.batches import (
    Record,
    batched_alike,
    flat,
    require_real,
    unflat,
)

_aten = torch.ops.aten


def _linalg_ldl_factor_ex(
    a: torch.Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    require_real("aten.linalg_ldl_factor_ex", a)
    n = a.shape[-1]
    record = Record(torch.ops.torchvk.ldl(flat(a)), a.shape[:-2])
    factors, pivots, info = record.take(n, n), record.take_whole(n), record.take_whole()
    if check_errors:
        torch.ops.torchvk.check_errors(info, "torch.linalg.ldl_factor_ex", a.dim() == 2)
    return factors, pivots, info


def _linalg_ldl_solve(
    factors: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *, hermitian: bool = False
) -> torch.Tensor:
    require_real("aten.linalg_ldl_solve", factors, b)
    factors, b = batched_alike(factors, b)
    pivots = pivots.to(torch.int32).expand(factors.shape[:-1])
    solution = torch.ops.torchvk.ldl_solve(flat(factors), flat(pivots, 1), flat(b))
    return unflat(solution, b.shape[:-2])


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(_aten.linalg_ldl_factor_ex.default, _linalg_ldl_factor_ex)
    route_decomposition(_aten.linalg_ldl_solve.default, _linalg_ldl_solve)
