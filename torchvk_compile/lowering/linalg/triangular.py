"""Triangular systems, real and complex.

In: aten.linalg_solve_triangular, aten.triangular_solve. Out: one launch per system. Forbidden: inverting the triangle.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.complex_table import rule
from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.linalg.batches import (
    batched_alike,
    flat,
    from_memory,
    in_memory,
    require_floating,
    unflat,
)

_aten = torch.ops.aten


def solve(
    a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> torch.Tensor:
    """X in A X = B, or in X A = B; batches are broadcast.

    Args:
        a: (…, n, n), of which only the named triangle is read, without its diagonal if `unitriangular`.
        b: (…, n, k), or (…, k, n) for ``left=False``.
    """
    if not left:
        return solve(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    a, b = batched_alike(a, b)
    flat_a, flat_b = in_memory(flat(a)), in_memory(flat(b))
    solution = torch.ops.torchvk.solve_triangular(flat_a, flat_b, upper, unitriangular)
    return unflat(from_memory(solution, b), b.shape[:-2])


@rule(_aten.linalg_solve_triangular.default)
def _linalg_solve_triangular(
    a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> torch.Tensor:
    require_floating("aten.linalg_solve_triangular", a, b)
    return solve(a, b, upper=upper, left=left, unitriangular=unitriangular)


@rule(_aten.triangular_solve.default)
def _triangular_solve(
    b: torch.Tensor,
    a: torch.Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    require_floating("aten.triangular_solve", a, b)
    a, b = batched_alike(a, b)
    factor = a.mT if transpose else a
    solution = solve(factor, b, upper=upper != transpose, unitriangular=unitriangular)
    return solution, a.clone()


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(_aten.linalg_solve_triangular.default, _linalg_solve_triangular)
    route_decomposition(_aten.triangular_solve.default, _triangular_solve)
