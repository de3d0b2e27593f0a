"""Matrix factorizations, where signs, phases and the order of eigenvalues leave a choice.

In: a call and its results. Out: nothing, or `Mismatch`. Forbidden: accepting factors whose product
is another matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .comparison import Mismatch, compare
from .tolerances import NOTHING_MORE, default

_AS_NEAR = 1.01
"""Truncated products of other draws differ by less, since subspace iteration is near the optimum."""


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _require_equal(
    what: str, products: Sequence[torch.Tensor], target: torch.Tensor, dtype: torch.dtype
) -> None:
    """The product of vk's factors, the first, is `target` as nearly as that of CPU eager's."""
    mine, theirs = products
    tolerance = default(dtype)
    if mine.shape != target.shape:
        raise Mismatch(f"{what}: shape {tuple(mine.shape)}, expected {tuple(target.shape)}")
    own = (theirs - target).abs().max().item() if target.numel() else 0.0
    allowed = (tolerance.atol + tolerance.rtol * target.abs()).clamp(min=own)
    difference = (mine - target).abs()
    if not bool((difference <= allowed).all()):
        raise Mismatch(f"{what} is off by {difference.max().item():.4g} (CPU's by {own:.4g})")


def _require_orthonormal(what: str, mine: torch.Tensor, theirs: torch.Tensor) -> None:
    def gram(factor: torch.Tensor) -> torch.Tensor:
        return _wide(factor).mH @ _wide(factor)

    if mine.shape != theirs.shape:
        raise Mismatch(f"{what}: shape {tuple(mine.shape)}, expected {tuple(theirs.shape)}")
    identity = torch.eye(theirs.shape[-1], dtype=gram(theirs).dtype).expand_as(gram(theirs))
    _require_equal(f"{what}ᴴ{what}", (gram(mine), gram(theirs)), identity, theirs.dtype)


def check_svd(call: Any, expected: Any, actual: Any) -> None:
    """U and V have orthonormal columns, S is torch's, U S Vᴴ is the matrix."""
    compare(actual[1], expected[1], NOTHING_MORE)
    transposed = call.name == "linalg_svd"
    matrix = _matrix(call)

    def product(parts: Any) -> torch.Tensor:
        left, values, right = (_wide(part) for part in parts)
        rank = values.shape[-1]
        right = right if transposed else right.mH
        return (left[..., :rank] * values.unsqueeze(-2)) @ right[..., :rank, :]

    if not bool((expected[0] == 0).all()):  # compute_uv=False gives zeros
        _require_orthonormal("U", actual[0], expected[0])
        vs = [parts[2].mH if transposed else parts[2] for parts in (actual, expected)]
        _require_orthonormal("V", *vs)
        low_rank = call.name in ("svd_lowrank", "pca_lowrank")
        target = product(expected) if low_rank else matrix
        _require_equal("U S Vᴴ", (product(actual), product(expected)), target, expected[1].dtype)


def check_low_rank(call: Any, expected: Any, actual: Any) -> None:
    """Like an SVD where the rank suffices; else a draw decides, and the result is as near as torch's."""
    if not truncates(call):
        check_svd(call, expected, actual)
        return
    target = _low_rank_target(call)
    errors = []
    for left, values, right in (actual, expected):
        product = (_wide(left) * _wide(values).unsqueeze(-2)) @ _wide(right).mH
        errors.append((product - target).norm().item())
    if not errors[0] <= _AS_NEAR * errors[1]:
        raise Mismatch(f"U S Vᴴ is off by {errors[0]:.4g} (CPU's by {errors[1]:.4g})")
    _require_orthonormal("U", actual[0], expected[0])
    _require_orthonormal("V", actual[2], expected[2])


def truncates(call: Any) -> bool:
    """Whether svd_lowrank or pca_lowrank cannot give all of the matrix, so that its draw shows."""
    values = torch.linalg.svdvals(_low_rank_target(call))
    rank = call.kwargs.get("q") or 6
    return bool((values[..., rank:] > 1e-3 * values[..., :1]).any())


def _low_rank_target(call: Any) -> torch.Tensor:
    """The entries' functions take the matrix's factors; `M` is subtracted, and a mean if `center`."""
    target = _matrix(call) @ _wide(call.args[0]).mH
    if call.kwargs.get("M") is not None:
        target = target - _wide(call.kwargs["M"])
    if call.name == "pca_lowrank" and call.kwargs.get("center", True):
        target = target - target.mean(-2, keepdim=True)
    return target


def check_eigh(call: Any, expected: Any, actual: Any) -> None:
    """The eigenvalues are torch's, the vectors orthonormal, A V = V diag(L)."""
    compare(actual[0], expected[0], NOTHING_MORE)
    _require_orthonormal("V", actual[1], expected[1])
    _require_equal(
        "V L Vᴴ",
        (_spectral(actual), _spectral(expected)),
        _spectral(expected),
        expected[1].dtype,
    )


def _spectral(parts: Any) -> torch.Tensor:
    values, vectors = (_wide(part) for part in parts)
    return (vectors * values.unsqueeze(-2)) @ vectors.mH


def check_eig(call: Any, expected: Any, actual: Any) -> None:
    """The eigenvalues are torch's in some order, A V = V diag(L) with vectors of length one."""
    check_eigvals(call, expected[0], actual[0])
    matrix = _matrix(call).to(torch.complex128)

    def residual(parts: Any) -> torch.Tensor:
        values, vectors = (_wide(part) for part in parts)
        return matrix @ vectors - vectors * values.unsqueeze(-2)

    zero = torch.zeros_like(residual(expected))
    _require_equal("A V - V L", (residual(actual), residual(expected)), zero, expected[0].dtype)
    norms = [_wide(parts[1]).norm(dim=-2) for parts in (actual, expected)]
    _require_equal("|V|", norms, torch.ones_like(norms[1]), expected[0].dtype)


def check_eigvals(call: Any, expected: Any, actual: Any) -> None:
    """torch's eigenvalues, in some order."""
    mine, theirs = _wide(actual), _wide(expected)
    if mine.shape != theirs.shape or actual.dtype != expected.dtype:
        raise Mismatch(f"eigenvalues {tuple(mine.shape)}, expected {tuple(theirs.shape)}")
    tolerance = default(expected.dtype)
    for some, others in zip(_rows(mine), _rows(theirs), strict=True):
        left = others.tolist()
        for value in some.tolist():
            nearest = min(left, key=lambda other: abs(other - value))
            if abs(nearest - value) > tolerance.atol + tolerance.rtol * abs(nearest):
                raise Mismatch(f"{value} is no eigenvalue; the nearest is {nearest}")
            left.remove(nearest)


def _rows(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(values.shape[:-1].numel(), values.shape[-1])


def in_eigenvalue_order(
    name: str,
    results: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Cotangents of `outputs` for `results`, where eigenvalues, and what belongs to them, may come in another order.

    Both are eigenvalues (…, n), and functions (…, n, n) of the eigenvectors in the columns, if any.
    """
    if name not in ("linalg_eig", "linalg_eigvals"):
        return list(cotangents)
    rows = [_rows(_wide(values[0])) for values in (results, outputs)]
    order = []
    for some, others in zip(*rows, strict=True):
        left = list(range(len(others)))
        order.append([])
        for value in some:
            nearest = min(left, key=lambda place: abs(others[place] - value))
            left.remove(nearest)
            order[-1].append(nearest)
    places = torch.tensor(order, dtype=torch.int64).reshape(results[0].shape)
    return [
        c.take_along_dim(places if c.dim() == places.dim() else places.unsqueeze(-2), -1)
        for c in cotangents
    ]


def check_qr(call: Any, expected: Any, actual: Any) -> None:
    """Q has orthonormal columns, R is upper triangular, Q R is the matrix."""
    matrix = _matrix(call)
    upper = _wide(actual[1])
    if not torch.equal(upper, upper.triu()):
        raise Mismatch("R is not upper triangular")
    if expected[0].numel() == 0 and matrix.numel():  # mode "r"
        grams = [_wide(parts[1]).mH @ _wide(parts[1]) for parts in (actual, expected)]
        _require_equal("RᴴR", grams, matrix.mH @ matrix, expected[1].dtype)
        return
    _require_orthonormal("Q", actual[0], expected[0])
    products = [_wide(parts[0]) @ _wide(parts[1]) for parts in (actual, expected)]
    _require_equal("Q R", products, matrix, expected[1].dtype)


def check_geqrf(call: Any, expected: Any, actual: Any) -> None:
    """The reflectors and R give the matrix."""
    products = []
    for packed, tau in (actual, expected):
        packed, tau = _wide(packed), _wide(tau)
        columns = min(packed.shape[-2:])
        upper = packed.triu()[..., :columns, :]
        products.append(torch.linalg.householder_product(packed[..., :columns], tau) @ upper)
    _require_equal("Q R", products, _matrix(call), expected[0].dtype)


def check_lu_factor(call: Any, expected: Any, actual: Any) -> None:
    """P L U, unpacked from one matrix and its pivots, is the matrix."""
    products = []
    for packed, pivots, *_ in (actual, expected):
        permutation, lower, upper = torch.lu_unpack(_wide(packed), pivots.cpu())
        products.append(permutation.to(lower.dtype) @ lower @ upper)
    _require_equal("P L U", products, _matrix(call), expected[0].dtype)


def check_lu(call: Any, expected: Any, actual: Any) -> None:
    """P is a permutation, L unit lower triangular, U upper triangular, P L U is the matrix."""
    _, lower, upper = (_wide(part) for part in actual)
    if not torch.equal(upper, upper.triu()) or not torch.equal(lower, lower.tril()):
        raise Mismatch("L or U is not triangular")
    products = [_wide(p) @ _wide(low) @ _wide(up) for p, low, up in (actual, expected)]
    _require_equal("P L U", products, _matrix(call), expected[2].dtype)


def _matrix(call: Any) -> torch.Tensor:
    return _wide(call.input)


CHECKS = {
    "svd": check_svd,
    "linalg_svd": check_svd,
    "svd_lowrank": check_low_rank,
    "pca_lowrank": check_low_rank,
    "linalg_eigh": check_eigh,
    "linalg_eig": check_eig,
    "linalg_eigvals": check_eigvals,
    "qr": check_qr,
    "linalg_qr": check_qr,
    "geqrf": check_geqrf,
    "lu": check_lu_factor,
    "linalg_lu_factor": check_lu_factor,
    "linalg_lu_factor_ex": check_lu_factor,
    "linalg_lu": check_lu,
}
