"""Cholesky factors, and solutions and inverses from them.

In: the cholesky operators of ATen, on real and complex tensors. Out: a factorization in one launch, triangular systems;
for complex ones as rules in `complex_table`. Forbidden: reading the other triangle.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.complex_table import rule
from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.linalg import triangular
from torchvk_compile.lowering.linalg.batches import Record, flat, in_memory, require_floating

_aten = torch.ops.aten


@rule(_aten.linalg_cholesky_ex.default)
def _linalg_cholesky_ex(
    a: torch.Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    require_floating("aten.linalg_cholesky_ex", a)
    factor, info = _factor(a, upper)
    if check_errors:
        torch.ops.torchvk.check_errors(info, "linalg.cholesky_ex", a.dim() == 2)
    return factor, info


@rule(_aten.cholesky.default)
def _cholesky(a: torch.Tensor, upper: bool = False) -> torch.Tensor:
    require_floating("aten.cholesky", a)
    factor, info = _factor(a, upper)
    torch.ops.torchvk.check_errors(info, "cholesky", a.dim() == 2)
    return factor


def _factor(a: torch.Tensor, upper: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower factor from the lower triangle, or the upper factor from the upper triangle; and info."""
    n = a.shape[-1]
    lower = in_memory(flat(a.mH if upper else a))
    record = Record(torch.ops.torchvk.cholesky(lower), a.shape[:-2])
    factor, info = record.take_elements(a, n, n), record.take_whole()
    return (factor.mH if upper else factor), info


@rule(_aten.cholesky_solve.default, _aten._cholesky_solve_helper.default)
def _cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    require_floating("aten.cholesky_solve", b, factor)
    return _solve(factor, b, upper)


def _solve(factor: torch.Tensor, b: torch.Tensor, upper: bool) -> torch.Tensor:
    lower = factor.mH if upper else factor
    return triangular.solve(lower.mH, triangular.solve(lower, b, upper=False), upper=True)


@rule(_aten.cholesky_inverse.default)
def _cholesky_inverse(factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    require_floating("aten.cholesky_inverse", factor)
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
