"""LU factors with partial pivoting, and solutions, inverses and determinants from them.

In: the LU operators of ATen, on real and complex tensors. Out: a factorization in one launch, triangular systems; for
complex ones as rules in `complex_table`. Forbidden: pivoting unlike LAPACK, since users compare and save factors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.virtualized import V

from torchvk_compile.lowering.complex_table import real_dtype, rule
from torchvk_compile.lowering.decomposed import lower_decomposed, route_decomposition
from torchvk_compile.lowering.linalg import triangular
from torchvk_compile.lowering.linalg.batches import (
    Record,
    flat,
    in_memory,
    require_floating,
    unflat,
)
from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten

Factors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def factor(a: torch.Tensor, pivot: bool = True) -> Factors:
    """L and U in one matrix, the rows swapped at every step (counted from 1, int32), info (int32)."""
    m, n = a.shape[-2:]
    record = Record(torch.ops.torchvk.lu(in_memory(flat(a)), pivot), a.shape[:-2])
    return record.take_elements(a, m, n), record.take_whole(min(m, n)), record.take_whole()


def solve(
    lu: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *, transposed: bool = False
) -> torch.Tensor:
    """X in A X = B, or in Aᵀ X = B, from A's factors; batches are broadcast."""
    batch = torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order = _permutation(pivots, lu.shape[-1], inverse=transposed)
    places = order.long().unsqueeze(-1).expand(*batch, *b.shape[-2:])
    b = b.expand(*batch, *b.shape[-2:])
    if transposed:
        b = triangular.solve(lu.mT, b, upper=False)
        b = triangular.solve(lu.mT, b, upper=True, unitriangular=True)
        return b.gather(-2, places)
    b = triangular.solve(lu, b.gather(-2, places), upper=False, unitriangular=True)
    return triangular.solve(lu, b, upper=True)


def _permutation(pivots: torch.Tensor, n: int, *, inverse: bool = False) -> torch.Tensor:
    """Which row of A is row i of L U, int32 (…, n); or the inverse of that."""
    order = torch.ops.torchvk.permutation(flat(pivots, 1), n, inverse)
    return unflat(order, pivots.shape[:-1])


@rule(_aten.linalg_lu_factor_ex.default)
def _linalg_lu_factor_ex(
    a: torch.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> Factors:
    require_floating("aten.linalg_lu_factor_ex", a)
    lu, pivots, info = factor(a, pivot)
    if check_errors:
        torch.ops.torchvk.check_errors(info, "torch.linalg.lu_factor_ex", a.dim() == 2)
    return lu, pivots, info


@rule(_aten.linalg_lu.default)
def _linalg_lu(a: torch.Tensor, *, pivot: bool = True) -> Factors:
    require_floating("aten.linalg_lu", a)
    lu, pivots, _ = factor(a, pivot)
    p, lower, upper = _unpack(lu, pivots)
    return (p if pivot else a.new_empty(0)), lower, upper


@rule(_aten.lu_unpack.default)
def _lu_unpack(
    lu: torch.Tensor, pivots: torch.Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Factors:
    require_floating("aten.lu_unpack", lu)
    p, lower, upper = _unpack(lu, pivots)
    nothing = lu.new_empty(0)
    return (
        p if unpack_pivots else nothing,
        lower if unpack_data else nothing,
        upper if unpack_data else nothing,
    )


def _unpack(lu: torch.Tensor, pivots: torch.Tensor) -> Factors:
    """P, L and U with A = P L U."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    rows = torch.arange(m, dtype=torch.int32, device=lu.device).unsqueeze(-1)
    p = (_permutation(pivots, m).unsqueeze(-2) == rows).to(lu.dtype)
    identity = torch.eye(m, k, dtype=lu.dtype, device=lu.device)
    return p, lu[..., :k].tril(-1) + identity, lu[..., :k, :].triu()


@rule(_aten.linalg_lu_solve.default)
def _linalg_lu_solve(
    lu: torch.Tensor,
    pivots: torch.Tensor,
    b: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    require_floating("aten.linalg_lu_solve", lu, b)
    # X Aᴴ = B is conj(A) Xᵀ = Bᵀ, and Aᴴ X = B is Aᵀ conj(X) = conj(B).
    right = b.conj() if adjoint else b
    if left:
        result = solve(lu, pivots, right, transposed=adjoint)
    else:
        result = solve(lu, pivots, right.mT, transposed=not adjoint).mT
    return result.conj() if adjoint else result


@rule(_aten._linalg_solve_ex.default)
def _linalg_solve_ex(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[torch.Tensor, ...]:
    require_floating("aten._linalg_solve_ex", a, b)
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    lu, pivots, info = factor(a)
    right = b.unsqueeze(-1) if vector else b
    if left:
        result = solve(lu, pivots, right)
    else:
        result = solve(lu, pivots, right.mT, transposed=True).mT
    if check_errors:
        torch.ops.torchvk.check_errors(info, "torch.linalg.solve_ex", a.dim() == 2)
    return (result.squeeze(-1) if vector else result), lu, pivots, info


@rule(_aten.linalg_inv_ex.default)
def _linalg_inv_ex(
    a: torch.Tensor, *, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    require_floating("aten.linalg_inv_ex", a)
    lu, pivots, info = factor(a)
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    if check_errors:
        torch.ops.torchvk.check_errors(info, "linalg.inv_ex", a.dim() == 2)
    return solve(lu, pivots, identity), info


def _linalg_det(a: torch.Tensor, *, transposed: bool) -> Factors:
    require_floating("aten._linalg_det", a)
    lu, pivots, _ = factor(a.mT if transposed else a)
    return _parity(pivots, lu) * _diagonal(lu).prod(-1), lu, pivots


def _linalg_slogdet(a: torch.Tensor, *, transposed: bool) -> tuple[torch.Tensor, ...]:
    require_floating("aten._linalg_slogdet", a)
    lu, pivots, _ = factor(a.mT if transposed else a)
    sign = _parity(pivots, lu) * torch.sgn(_diagonal(lu)).prod(-1)
    return sign, _diagonal(lu).abs().log().sum(-1), lu, pivots


def _parity(pivots: torch.Tensor, lu: torch.Tensor) -> torch.Tensor:
    """The determinant of the permutation, a real number of the precision of `lu`."""
    steps = torch.arange(1, pivots.shape[-1] + 1, dtype=torch.int32, device=pivots.device)
    return 1 - 2 * ((pivots != steps).sum(-1) % 2).to(real_dtype(lu))


@rule(_aten._linalg_det.default)
def _complex_det(a: torch.Tensor) -> Factors:
    return _linalg_det(a, transposed=False)


@rule(_aten._linalg_slogdet.default)
def _complex_slogdet(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return _linalg_slogdet(a, transposed=False)


def _diagonal(lu: torch.Tensor) -> torch.Tensor:
    return lu.diagonal(dim1=-2, dim2=-1)


def _factoring_like_aten(function: Any) -> Any:
    """A lowering of an operator that returns A's factors, or those of Aᵀ if A is contiguous and real.

    ATen does so to save a copy, and its gradient formulas rely on it (linalg_det_backward, slogdet_backward).
    Strides are those of the traced graph, which the gradient's graph was made with.
    """

    def lowering(*args: Any, **kwargs: Any) -> Any:
        transposed = V.current_node.args[0].meta["val"].is_contiguous()
        return lower_decomposed(function, *args, transposed=transposed, **kwargs)

    return lowering


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(_aten.linalg_lu_factor_ex.default, _linalg_lu_factor_ex)
    route_decomposition(_aten.linalg_lu.default, _linalg_lu)
    route_decomposition(_aten.lu_unpack.default, _lu_unpack)
    route_decomposition(_aten.linalg_lu_solve.default, _linalg_lu_solve)
    route_decomposition(_aten.linalg_inv_ex.default, _linalg_inv_ex)
    route_decomposition(_aten._linalg_solve_ex.default, _linalg_solve_ex)
    route(_aten._linalg_det.default, _factoring_like_aten(_linalg_det))
    route(_aten._linalg_slogdet.default, _factoring_like_aten(_linalg_slogdet))
