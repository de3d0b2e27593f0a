"""Cholesky, LU and QR, and what is solved with them: values, gradients, batches, empty and singular matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]
SHAPES = [((18, 18), torch.float64), ((2, 21, 5), torch.float32), ((2, 5, 21), torch.float32)]


def _matrices(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """Well-conditioned where square."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, dtype=dtype, generator=generator)
    x = x / shape[-1] ** 0.5 + 2 * torch.eye(*shape[-2:], dtype=dtype)
    return x.requires_grad_(grad)


def _definite(*batch: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = _matrices(*batch, n, n, dtype=dtype)
    return x @ x.mT + torch.eye(n, dtype=dtype)


def test_cholesky(assert_close_like_cpu: Check) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        factor, upper = torch.linalg.cholesky(a), torch.linalg.cholesky(a, upper=True)
        return factor, upper, torch.cholesky_solve(b, factor), torch.cholesky_inverse(upper, True)

    a = _definite(2, n=19, dtype=torch.float64).requires_grad_()
    assert_close_like_cpu(solve, a, _matrices(2, 19, 3, dtype=torch.float64, grad=True))


def test_cholesky_of_matrices_that_are_not_definite(assert_close_like_cpu: Check) -> None:
    a = _definite(3, n=5)
    a[1, 3, 3] = -1
    a[2] = torch.nan
    assert_close_like_cpu(lambda a: torch.linalg.cholesky_ex(a).info, a)


@pytest.mark.parametrize(("shape", "dtype"), SHAPES, ids=str)
def test_lu(assert_close_like_cpu: Check, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def factors(a: torch.Tensor) -> Any:
        lu, pivots, info = torch.linalg.lu_factor_ex(a)
        return lu, pivots, info, *torch.linalg.lu(a), *torch.lu_unpack(lu, pivots)

    a = _matrices(*shape, dtype=dtype, grad=True)
    assert_close_like_cpu(factors, a, dynamic=False)


@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (2, 5, 7)])
def test_gradients_of_lu_with_sizes_that_vary(
    assert_close_like_cpu: Check, shape: tuple[int, ...]
) -> None:
    a = _matrices(*shape, grad=True)
    assert_close_like_cpu(lambda a: torch.linalg.lu(a)[1:], a, dynamic=True, eager=False)


def test_the_first_of_equal_pivots_is_taken(assert_close_like_cpu: Check) -> None:
    a = torch.tensor([[1.0, 2, 3], [-4, 1, 0], [4, 0, 1]]).repeat(2, 1, 1)
    a[1, :, 0] = 0
    assert_close_like_cpu(torch.linalg.lu_factor_ex, a)


@pytest.mark.long
def test_solutions(assert_close_like_cpu: Check) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> Any:
        lu, pivots = torch.linalg.lu_factor(a)
        return (
            torch.linalg.solve(a, b),
            torch.linalg.solve(a, b.mT, left=False),
            torch.linalg.solve(a[0], v),
            torch.linalg.inv(a),
            torch.linalg.lu_solve(lu, pivots, b, adjoint=True),
            torch.linalg.lu_solve(lu, pivots, b.mT, left=False),
        )

    a, b = _matrices(3, 7, 7, grad=True), _matrices(7, 2, grad=True)
    assert_close_like_cpu(solve, a, b, torch.arange(7.0).requires_grad_())


@pytest.mark.parametrize(("upper", "unit"), [(False, True), (True, False)])
def test_triangular_systems(assert_close_like_cpu: Check, upper: bool, unit: bool) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        left = torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)
        right = torch.linalg.solve_triangular(a, b.mT, upper=upper, left=False, unitriangular=unit)
        column = torch.linalg.solve_triangular(a, b[..., :1], upper=upper, unitriangular=unit)
        older = torch.triangular_solve(b, a, upper, transpose=True, unitriangular=unit)
        return left, right, column, older

    a = _matrices(2, 1, 18, 18) / 4 + 2 * torch.eye(18)
    assert_close_like_cpu(solve, a.requires_grad_(), _matrices(3, 18, 17, grad=True))


def test_determinants(assert_close_like_cpu: Check) -> None:
    def determinants(a: torch.Tensor) -> Any:
        return torch.linalg.det(a), torch.linalg.det(a.mT), *torch.linalg.slogdet(a)

    assert_close_like_cpu(determinants, _matrices(4, 6, 6, grad=True))
    assert_close_like_cpu(determinants, torch.zeros(2, 3, 3), compiled=False)


@pytest.mark.parametrize(("shape", "dtype"), SHAPES, ids=str)
def test_qr(assert_close_like_cpu: Check, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def factors(a: torch.Tensor) -> Any:
        return *torch.linalg.qr(a), torch.linalg.qr(a.detach(), "r").R

    assert_close_like_cpu(factors, _matrices(*shape, dtype=dtype, grad=shape[-2] >= shape[-1]))


def test_products_with_reflections(assert_close_like_cpu: Check) -> None:
    def products(a: torch.Tensor, c: torch.Tensor) -> Any:
        packed, tau = torch.geqrf(a)
        return (
            packed,
            tau,
            torch.linalg.qr(a, "complete").Q,
            torch.linalg.householder_product(packed, tau),
            torch.ormqr(packed, tau, c),
            torch.ormqr(packed, tau, c, transpose=True),
            torch.ormqr(packed, tau, c.mT, left=False),
        )

    assert_close_like_cpu(products, _matrices(2, 20, 6), _matrices(2, 20, 3))


def test_extreme_scales_do_not_overflow(assert_close_like_cpu: Check) -> None:
    a = _matrices(5, 3)
    assert_close_like_cpu(lambda a: torch.linalg.qr(a).R, torch.stack([a * 1e30, a * 1e-30]))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0)], ids=str)
def test_empty_matrices(assert_close_like_cpu: Check, shape: tuple[int, ...]) -> None:
    def everything(a: torch.Tensor) -> Any:
        return (
            torch.linalg.cholesky(a),
            *torch.linalg.lu(a),
            torch.linalg.inv(a),
            torch.linalg.solve(a, a),
            *torch.linalg.slogdet(a),
            torch.linalg.det(a),
            *torch.linalg.qr(a),
        )

    assert_close_like_cpu(everything, torch.zeros(shape))


def test_matrices_without_rows_or_columns(assert_close_like_cpu: Check) -> None:
    def everything(a: torch.Tensor) -> Any:
        lu, pivots, info = torch.linalg.lu_factor_ex(a)
        return lu, pivots, info, *torch.linalg.lu(a), *torch.linalg.qr(a)

    assert_close_like_cpu(everything, torch.zeros(2, 0, 3))
    assert_close_like_cpu(everything, torch.zeros(2, 3, 0))


SINGULAR = {
    "inv": torch.linalg.inv,
    "inv_ex": lambda a: torch.linalg.inv_ex(a, check_errors=True),
    "solve": lambda a: torch.linalg.solve(a, a),
    "cholesky": torch.linalg.cholesky,
    "cholesky_ex": lambda a: torch.linalg.cholesky_ex(a, check_errors=True),
    "cholesky_inverse": torch.cholesky_inverse,
    "lu_factor": torch.linalg.lu_factor,
}


@pytest.mark.parametrize(
    ("name", "compiled"), [*((name, False) for name in SINGULAR), ("inv", True), ("inv_ex", True)]
)
def test_errors_are_those_of_the_cpu(vk: torch.device, name: str, compiled: bool) -> None:
    function = SINGULAR[name]
    for a in (torch.zeros(3, 3), torch.eye(3).repeat(2, 1, 1)):
        a[..., -1, -1] = 0
        with pytest.raises(RuntimeError) as expected:
            function(a)
        way = torch.compile(function, backend="torchvk") if compiled else function
        with pytest.raises(type(expected.value)) as actual:
            way(a.to(vk))
        assert str(actual.value) == str(expected.value)


def test_sizes_that_vary_compile_once(assert_close_like_cpu: Check) -> None:
    def solve(a: torch.Tensor) -> Any:
        return torch.linalg.inv(a), torch.linalg.qr(a).R, torch.linalg.cholesky(a @ a.mT)

    for n in (3, 5, 9):
        assert_close_like_cpu(solve, _matrices(2, n, n), dynamic=True, eager=False)


def test_other_dtypes_are_refused(vk: torch.device) -> None:
    with pytest.raises(NotImplementedError, match=r"linalg_qr.*complex64"):
        torch.linalg.qr(torch.zeros(2, 2, dtype=torch.complex64).to(vk))
