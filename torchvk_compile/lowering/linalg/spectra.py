"""Eigenvalues of symmetric matrices, singular values, and the pseudoinverse.

In: aten._linalg_eigh, aten._linalg_svd, aten.linalg_pinv. Out: Jacobi's methods in one launch each, and QR for what
they leave open. Forbidden: forming AᵀA, which squares the condition number.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.linalg import qr
from torchvk_compile.lowering.linalg.batches import Record, flat, require_real

_aten = torch.ops.aten


def eigh(a: torch.Tensor, *, upper: bool, vectors: bool) -> tuple[torch.Tensor, ...]:
    """Eigenvalues in ascending order and eigenvectors as columns, from one triangle of the matrix.

    Raises:
        LinAlgError: where the graph runs, for matrices that are not finite.
    """
    n = a.shape[-1]
    a = a.mT if upper else a
    symmetric = a.tril() + a.tril(-1).mT
    record = Record(torch.ops.torchvk.eigh(flat(symmetric), vectors), a.shape[:-2])
    rows, values, info = record.take(n, n), record.take(n), record.take_whole()
    torch.ops.torchvk.check_errors(info, "linalg.eigh", a.dim() == 2)
    return values, rows.mT


def singular_values(a: torch.Tensor) -> torch.Tensor:
    """The singular values, the largest first."""
    return _rotated(a.mT if a.shape[-2] >= a.shape[-1] else a, vectors=False)[1]


def svd(a: torch.Tensor, *, full: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """U, S and Vᵀ with A = U diag(S) Vᵀ; U and V are square if `full`.

    Raises:
        LinAlgError: where the graph runs, for matrices that are not finite.
    """
    m, n = a.shape[-2:]
    if m < n:
        left, values, right = svd(a.mT, full=full)
        return right.mT, values, left.mT
    rows, values, right = _rotated(a.mT, vectors=True)
    # The columns of U S are orthogonal already, so that R is diagonal. Its Q is orthonormal also where columns of
    # U S vanish, and goes on to as many columns as are wanted.
    packed, tau = qr.factor(rows.mT)
    left = qr.orthonormal(packed, tau, m if full else n)
    negative = packed.diagonal(dim1=-2, dim2=-1).unsqueeze(-2) < 0
    signed = torch.where(negative, -left[..., :n], left[..., :n])
    return (torch.cat([signed, left[..., n:]], -1) if full else signed), values, right


def _rotated(rows: torch.Tensor, *, vectors: bool) -> tuple[torch.Tensor, ...]:
    """Orthogonal rows, their lengths, and the rotation that the original rows go through."""
    n, length = rows.shape[-2:]
    record = Record(torch.ops.torchvk.svd(flat(rows), vectors), rows.shape[:-2])
    orthogonal, rotation = record.take(n, length), record.take(n, n)
    values, info = record.take(n), record.take_whole()
    torch.ops.torchvk.check_errors(info, "linalg.svd", rows.dim() == 2)
    return orthogonal, values, rotation


def _linalg_eigh(
    a: torch.Tensor, uplo: str = "L", compute_v: bool = True
) -> tuple[torch.Tensor, ...]:
    require_real("aten._linalg_eigh", a)
    values, vectors = eigh(a, upper=uplo.upper() == "U", vectors=compute_v)
    return values, (vectors if compute_v else a.new_empty(0))


def _linalg_svd(
    a: torch.Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[torch.Tensor, ...]:
    require_real("aten._linalg_svd", a)
    if not compute_uv:
        return a.new_empty(0), singular_values(a), a.new_empty(0)
    return svd(a, full=full_matrices)


def _linalg_pinv(
    a: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    require_real("aten.linalg_pinv", a)
    if a.numel() == 0:
        return a.new_empty((*a.shape[:-2], a.shape[-1], a.shape[-2]))
    if hermitian:
        values, vectors = eigh(a, upper=False, vectors=True)
        sizes, left, right = values.abs(), vectors, vectors.mT
    else:
        left, values, right = svd(a, full=False)
        sizes = values
    cutoff = _cutoff(a, sizes, atol, rtol)
    inverses = torch.where(sizes > cutoff.unsqueeze(-1), values.reciprocal(), 0)
    return (right.mT * inverses.unsqueeze(-2)) @ left.mT


def _cutoff(
    a: torch.Tensor, sizes: torch.Tensor, atol: torch.Tensor | None, rtol: torch.Tensor | None
) -> torch.Tensor:
    """What counts as zero: torch's default is eps max(m, n) of the largest value, or nothing if `atol` is given."""
    largest = sizes.amax(-1)
    absolute = torch.zeros_like(largest) if atol is None else atol
    relative = torch.full_like(largest, torch.finfo(a.dtype).eps * max(a.shape[-2:]))
    if rtol is not None:
        relative = rtol
    elif atol is not None:
        relative = torch.where(atol > 0, 0.0, relative)
    return torch.maximum(absolute, relative * largest)


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(_aten._linalg_eigh.default, _linalg_eigh)
    route_decomposition(_aten._linalg_svd.default, _linalg_svd)
    route_decomposition(_aten.linalg_pinv.atol_rtol_tensor, _linalg_pinv)
