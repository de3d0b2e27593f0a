"""Symmetric eigenvalues and singular values: what defines them, gradients that signs leave alone, hard matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]
DTYPES = [torch.float32, torch.float64]

_UNITS = 20
"""Errors allowed in units in the last place of the matrix's norm; 12 at most were seen, and from LAPACK as many."""


def _random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _matrices(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {
        "tall": _random(2, 21, 8, dtype=dtype),
        "wide": _random(8, 21, dtype=dtype),
        "odd": _random(17, 17, dtype=dtype),
        "rank deficient": _random(20, 3, dtype=dtype) @ _random(3, 20, dtype=dtype),
        "zero": torch.zeros(3, 4, dtype=dtype),
        "graded": _random(12, 12, dtype=dtype) * torch.logspace(0, -12, 12, dtype=dtype),
        "huge": _random(5, 5, dtype=dtype) * 1e30,
        "tiny": _random(5, 5, dtype=dtype) * 1e-30,
        "one element": _random(1, 1, dtype=dtype),
        "identity": torch.eye(6, dtype=dtype),
    }


def _require_small(what: str, error: torch.Tensor, scale: torch.Tensor | float = 1.0) -> None:
    units = error.abs() / torch.finfo(error.dtype).eps
    worst = (units / torch.as_tensor(scale, dtype=error.dtype)).max().item()
    assert worst <= _UNITS, f"{what}: off by {worst:.3g} units"


def _require_orthonormal(what: str, columns: torch.Tensor) -> None:
    identity = torch.eye(columns.shape[-1], dtype=columns.dtype)
    _require_small(what, columns.mT @ columns - identity)


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_value_decompositions(vk: torch.device, dtype: torch.dtype) -> None:
    for name, a in _matrices(dtype).items():
        for full in (False, True)[: 2 if name in ("tall", "wide") else 1]:
            u, s, vh = (t.cpu() for t in torch.linalg.svd(a.to(vk), full_matrices=full))
            expected = torch.linalg.svdvals(a)
            largest = expected.max().clamp(min=1e-37)
            k = s.shape[-1]
            assert u.shape[-1] == (a.shape[-2] if full else k), name
            _require_small(f"{name}: S", s - expected, largest)
            _require_small(
                f"{name}: A", (u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - a, largest
            )
            _require_orthonormal(f"{name}: U", u)
            _require_orthonormal(f"{name}: V", vh.mT)
            assert bool((s.diff() <= 0).all()), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_of_symmetric_matrices(vk: torch.device, dtype: torch.dtype) -> None:
    for name, a in _matrices(dtype).items():
        if a.shape[-1] != a.shape[-2]:
            continue
        a = a + a.mT
        values, vectors = (t.cpu() for t in torch.linalg.eigh(a.to(vk)))
        expected = torch.linalg.eigvalsh(a)
        largest = expected.abs().max().clamp(min=1e-37)
        _require_small(f"{name}: values", values - expected, largest)
        _require_small(f"{name}: A V", a @ vectors - vectors * values[..., None, :], largest)
        _require_orthonormal(f"{name}: V", vectors)


def test_only_one_triangle_is_read(assert_close_like_cpu: Check) -> None:
    def values(a: torch.Tensor) -> Any:
        return torch.linalg.eigvalsh(a), torch.linalg.eigvalsh(a, UPLO="U")

    a = _random(2, 6, 6, dtype=torch.float64)
    assert_close_like_cpu(values, a)
    a[0, 0, 5] = torch.nan
    assert_close_like_cpu(torch.linalg.eigvalsh, a, compiled=False)


@pytest.mark.long
def test_gradients(assert_close_like_cpu: Check) -> None:
    dtype = torch.float64

    def of_symmetric(a: torch.Tensor) -> Any:
        values, vectors = torch.linalg.eigh(a + a.mT)
        return values, vectors.abs()

    def of_general(a: torch.Tensor) -> Any:
        u, s, vh = torch.linalg.svd(a, full_matrices=False)
        return s, u.abs(), vh.abs(), torch.linalg.svdvals(a)

    square = (_random(2, 5, 5, dtype=dtype) + torch.diag(torch.arange(5.0).to(dtype) * 4)).detach()
    tall = torch.cat([square, torch.ones_like(square)], -2)
    assert_close_like_cpu(of_symmetric, square.requires_grad_())
    assert_close_like_cpu(of_general, tall.requires_grad_())


@pytest.mark.long
def test_what_is_made_of_singular_values(assert_close_like_cpu: Check) -> None:
    def everything(a: torch.Tensor, symmetric: torch.Tensor) -> Any:
        return (
            torch.linalg.pinv(a),
            torch.linalg.pinv(symmetric, hermitian=True),
            torch.linalg.pinv(a, atol=0.1),
            torch.linalg.matrix_rank(a),
            torch.linalg.matrix_rank(symmetric, hermitian=True),
            torch.linalg.cond(a),
            torch.linalg.matrix_norm(a, 2),
            torch.linalg.matrix_norm(a, "nuc"),
        )

    a = _random(2, 6, 4, dtype=torch.float64)
    symmetric = (a @ a.mT).detach()
    assert_close_like_cpu(everything, a.requires_grad_(), symmetric)


def test_empty_matrices(assert_close_like_cpu: Check) -> None:
    def everything(a: torch.Tensor) -> Any:
        return *torch.linalg.eigh(a), *torch.linalg.svd(a), torch.linalg.svdvals(a)

    assert_close_like_cpu(everything, torch.zeros(0, 0))
    assert_close_like_cpu(everything, torch.zeros(0, 3, 3), compiled=False)
    assert_close_like_cpu(torch.linalg.svd, torch.zeros(2, 0, 3), compiled=False)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_matrices_that_are_not_finite(vk: torch.device, compiled: bool, value: float) -> None:
    a = torch.ones(2, 3, 3)
    a[1, 1, 1] = value
    for function in (torch.linalg.eigh, torch.linalg.svd, torch.linalg.svdvals, torch.linalg.pinv):
        way = torch.compile(function, backend="torchvk") if compiled else function
        with pytest.raises(torch.linalg.LinAlgError, match="failed to converge"):
            way(a.to(vk))
