"""QR factors by Householder reflections, and products with Q.

In: the QR operators of ATen. Out: a factorization in one launch, products with its reflections. Forbidden: forming Q
where only a product with it is asked for.
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


def factor(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """R with the vectors of the reflections below it (…, m, n), and their factors tau (…, min(m, n))."""
    m, n = a.shape[-2:]
    record = Record(torch.ops.torchvk.qr(flat(a)), a.shape[:-2])
    return record.take(m, n), record.take(min(m, n))


def reflect(
    reflectors: torch.Tensor, tau: torch.Tensor, c: torch.Tensor, *, transposed: bool = False
) -> torch.Tensor:
    """Q C or Qᵀ C for the Q (m x m) of `factor`; batches are broadcast.

    Args:
        reflectors: (…, m, at least k).
        tau: (…, k).
        c: (…, m, columns).
    """
    reflectors, c = batched_alike(reflectors, c)
    tau = tau.expand(*c.shape[:-2], tau.shape[-1])
    product = torch.ops.torchvk.reflect(flat(reflectors), flat(tau, 1), flat(c), transposed)
    return unflat(product, c.shape[:-2])


def orthonormal(reflectors: torch.Tensor, tau: torch.Tensor, columns: int) -> torch.Tensor:
    """The first columns of Q."""
    identity = torch.eye(
        reflectors.shape[-2], columns, dtype=reflectors.dtype, device=reflectors.device
    )
    return reflect(reflectors, tau, identity)


def _linalg_qr(a: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor]:
    require_real("aten.linalg_qr", a)
    m, n = a.shape[-2:]
    packed, tau = factor(a)
    complete = mode == "complete"
    upper = (packed if complete else packed[..., : min(m, n), :]).triu()
    if mode == "r":
        return a.new_empty(0), upper
    return orthonormal(packed, tau, m if complete else min(m, n)), upper


def _geqrf(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    require_real("aten.geqrf", a)
    return factor(a)


def _linalg_householder_product(reflectors: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    require_real("aten.linalg_householder_product", reflectors, tau)
    return orthonormal(reflectors, tau, reflectors.shape[-1])


def _ormqr(
    reflectors: torch.Tensor,
    tau: torch.Tensor,
    c: torch.Tensor,
    left: bool = True,
    transpose: bool = False,
) -> torch.Tensor:
    require_real("aten.ormqr", reflectors, tau, c)
    if left:
        return reflect(reflectors, tau, c, transposed=transpose)
    return reflect(reflectors, tau, c.mT, transposed=not transpose).mT


def register() -> None:
    """Route the operators of this file."""
    route_decomposition(_aten.linalg_qr.default, _linalg_qr)
    route_decomposition(_aten.geqrf.default, _geqrf)
    route_decomposition(_aten.linalg_householder_product.default, _linalg_householder_product)
    route_decomposition(_aten.ormqr.default, _ormqr)
