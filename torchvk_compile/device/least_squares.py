"""Least squares, where the result's shape depends on the rank: residuals exist for matrices of full rank only.

In: vk tensors. Out: vk tensors. Forbidden: computing on the host; forming AᵀA, which squares the condition number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _linalg_lstsq(
    self: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> Result:
    vector = b.dim() == 1 or (self.dim() - 1 == b.dim() and b.shape == self.shape[:-1])
    sides = b.unsqueeze(-1) if vector else b
    driver = driver or "gelsy"
    _check(self, sides, driver)
    batch = torch.broadcast_shapes(self.shape[:-2], sides.shape[:-2])
    a = self.expand(*batch, *self.shape[-2:])
    sides = sides.expand(*batch, *sides.shape[-2:])
    if driver == "gels":
        solution, residuals = _from_qr(a, sides)
        rank, values = a.new_empty(0, dtype=torch.int64), a.new_empty(0)
    else:
        solution, rank, values = _from_svd(a, sides, rcond)
        residuals = a.new_empty(0)
        if driver == "gelsy":
            values = a.new_empty(0)
        elif a.shape[-2] > a.shape[-1] and bool((rank == a.shape[-1]).all()):
            residuals = (a @ solution - sides).square().sum(-2)
    return (solution.squeeze(-1) if vector else solution), residuals, rank, values


def _check(a: torch.Tensor, sides: torch.Tensor, driver: str) -> None:
    if driver not in _DRIVERS:
        raise RuntimeError(
            f"torch.linalg.lstsq: the driver is one of {', '.join(_DRIVERS)}, not {driver!r}"
        )
    if a.dim() < 2 or sides.dim() < 2:
        raise RuntimeError("torch.linalg.lstsq: needs a matrix, and a vector or a matrix")
    if a.dtype != sides.dtype:
        raise RuntimeError(
            f"torch.linalg.lstsq: both tensors must have one dtype, not {a.dtype} and {sides.dtype}"
        )
    if sides.shape[-2] != a.shape[-2]:
        raise RuntimeError(
            f"torch.linalg.lstsq: {a.shape[-2]} equations need as many right sides, not {sides.shape[-2]}"
        )


def _from_qr(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The solution for a matrix that is taken to have full rank, and the squared residuals if there may be any."""
    m, n = a.shape[-2:]
    # For fewer equations than unknowns the shortest of all solutions lies in the space of Aᵀ = Q R.
    packed, tau = torch.geqrf(a if m >= n else a.mT)
    upper = packed[..., : min(m, n), :]
    residuals = a.new_empty(0)
    if m >= n:
        rotated = torch.ormqr(packed, tau, b, transpose=True)
        solution = torch.linalg.solve_triangular(upper, rotated[..., :n, :], upper=True)
        if m > n:
            residuals = rotated[..., n:, :].square().sum(-2)
    else:
        part = torch.linalg.solve_triangular(upper.mT, b, upper=False)
        padding = part.new_zeros(*part.shape[:-2], n - m, part.shape[-1])
        solution = torch.ormqr(packed, tau, torch.cat([part, padding], -2))
    # LAPACK's gels lets a matrix of zeros pass, with zeros as its solution.
    zero = (a == 0).all(-1).all(-1)
    info = torch.where(zero, 0, _first_zero(upper))
    torch._linalg_check_errors(info, "torch.linalg.lstsq", is_matrix=a.dim() == 2)
    if residuals.numel():
        residuals = torch.where(zero[..., None], 0, residuals)
    return torch.where(zero[..., None, None], 0, solution), residuals


def _first_zero(upper: torch.Tensor) -> torch.Tensor:
    """Where the diagonal is zero for the first time, counted from 1, as int32; 0 where it never is."""
    n = upper.shape[-1]
    zero = upper.diagonal(dim1=-2, dim2=-1) == 0
    if n == 0:
        return zero.sum(-1, dtype=torch.int32)
    left = torch.arange(n, 0, -1, dtype=torch.int32, device=upper.device)
    found = torch.where(zero, left, 0).amax(-1)
    return torch.where(found > 0, n + 1 - found, 0)


def _from_svd(
    a: torch.Tensor, b: torch.Tensor, rcond: float | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The shortest solution, the rank and the singular values."""
    m, n = a.shape[-2:]
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    if rcond is None:
        rcond = torch.finfo(a.dtype).eps * max(m, n)
    counted = values > rcond * values[..., :1]
    inverses = torch.where(counted, values.reciprocal(), 0)
    solution = right.mT @ (inverses.unsqueeze(-1) * (left.mT @ b))
    return solution, counted.sum(-1), values


KERNELS: dict[str, Callable[..., Any]] = {"linalg_lstsq": _linalg_lstsq}
"""ATen kernels of this file."""
