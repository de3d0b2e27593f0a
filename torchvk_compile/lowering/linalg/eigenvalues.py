"""Eigenvalues and eigenvectors of square matrices, which are complex also where the matrix is real.

In: aten.linalg_eig and aten._linalg_eigvals on real tensors. Out: rules in `complex_table`, one launch each. Forbidden:
Inductor's IR.

Matrices are not balanced first, unlike in LAPACK's geev: eigenvalues are exact for a matrix that differs from the given
one by a few units in the last place of its norm.
"""

from __future__ import annotations

import torch

from torchvk_compile.lowering.complex_table import join, rule
from torchvk_compile.lowering.linalg.batches import Record, flat

_aten = torch.ops.aten
_REAL = (torch.float32, torch.float64)


@rule(_aten.linalg_eig.default)
def eig(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues (…, n) and eigenvectors of length 1 as columns (…, n, n), complex; their order is not defined.

    NotImplemented, as for an operator without a rule, for anything but float32 and float64.

    Raises:
        LinAlgError: where the graph runs, for matrices that are not finite or do not converge.
    """
    if a.dtype not in _REAL:
        return NotImplemented
    values, record = _spectrum(a, vectors=True)
    n = a.shape[-1]
    real, imag = record.take(n, n), record.take(n, n)
    return values, join((real, imag)).mT


@rule(_aten._linalg_eigvals.default)
def eigvals(a: torch.Tensor) -> torch.Tensor:
    """As `eig`, the eigenvalues alone."""
    if a.dtype not in _REAL:
        return NotImplemented
    return _spectrum(a, vectors=False)[0]


def _spectrum(a: torch.Tensor, *, vectors: bool) -> tuple[torch.Tensor, Record]:
    """The eigenvalues, and the record with the eigenvectors next."""
    n = a.shape[-1]
    record = Record(torch.ops.torchvk.eig(flat(a), vectors), a.shape[:-2])
    real, imag, info = record.take(n), record.take(n), record.take_whole()
    torch.ops.torchvk.check_errors(info, "linalg.eig", a.dim() == 2)
    return join((real, imag)), record
