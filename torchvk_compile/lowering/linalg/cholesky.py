"""Cholesky factors, and solutions and inverses from them.

In: the cholesky operators of ATen. Out: a factorization in one launch, triangular systems. Forbidden: reading the other
triangle.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.linalg import triangular
from torchvk_compile.lowering.linalg.batches import Record, flat, require_real

_aten = torch.ops.aten


def _linalg_cholesky_ex(
    a: torch.Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    require_real("aten.linalg_cholesky_ex", a)
    factor, info = _factor(a, upper)
    if check_errors:
        torch.ops.torchvk.check_errors(info, "linalg.cholesky_ex", a.dim() == 2)
    return factor, info


def _cholesky(a: torch.Tensor, upper: bool = False) -> torch.Tensor:
    require_real("aten.cholesky", a)
    factor, info = _factor(a, upper)
    torch.ops.torchvk.check_errors(info, "cholesky", a.dim() == 2)
    return factor


def _factor(a: torch.Tensor, upper: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower factor from the lower triangle, or the upper factor from the upper triangle; and info."""
    n = a.shape[-1]
    record = Record(torch.ops.torchvk.cholesky(flat(a.mT if upper else a)), a.shape[:-2])
    factor, info = record.take(n, n), record.take_whole()
    return (factor.mT if upper else factor), info


def _cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    require_real("aten.cholesky_solve", b, factor)
    return _solve(factor, b, upper)


def _solve(factor: torch.Tensor, b: torch.Tensor, upper: bool) -> torch.Tensor:
    lower = factor.mT if upper else factor
    return triangular.solve(lower.mT, triangular.solve(lower, b, upper=False), upper=True)


def _cholesky_inverse(factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    require_real("aten.cholesky_inverse", factor)
    n = factor.shape[-1]
    if n:
        zero = factor.diagonal(dim1=-2, dim2=-1) == 0
        order = torch.arange(1, n + 1, dtype=torch.int32, device=factor.device)
        first = torch.where(zero, order, n + 1).amin(-1)
        info = torch.where(first > n, 0, first)
        torch.ops.torchvk.check_errors(info, "cholesky_inverse", factor.dim() == 2)
    identity = torch.eye(n, dtype=factor.dtype, device=factor.device)
    return _solve(factor, identity, upper)


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(_aten.linalg_cholesky_ex.default, _linalg_cholesky_ex)
    route_decomposition(_aten.cholesky.default, _cholesky)
    # Traced graphs hold the first of these, eager calls reach the second.
    route_decomposition(_aten.cholesky_solve.default, _cholesky_solve)
    route_decomposition(_aten._cholesky_solve_helper.default, _cholesky_solve)
    route_decomposition(_aten.cholesky_inverse.default, _cholesky_inverse)
