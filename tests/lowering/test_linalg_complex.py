"""LU and Cholesky factors of complex matrices, and what is solved with them: values, gradients, batches, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


def _random(*shape: int, dtype: torch.dtype = torch.complex128, grad: bool = True) -> torch.Tensor:
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    if shape[-1] == shape[-2]:
        x = x / shape[-1] ** 0.5 + 2 * torch.eye(shape[-1], dtype=dtype)
    return x.requires_grad_(grad)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((18, 18), torch.complex128),
        pytest.param((2, 21, 5), torch.complex64, marks=pytest.mark.long),
        pytest.param((2, 5, 21), torch.complex64, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_lu(assert_close_like_cpu: Check, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def factors(a: torch.Tensor) -> Any:
        lu, pivots, info = torch.linalg.lu_factor_ex(a)
        return lu, pivots, info, *torch.linalg.lu(a), *torch.lu_unpack(lu, pivots)

    assert_close_like_cpu(factors, _random(*shape, dtype=dtype))


@pytest.mark.long
def test_solutions(assert_close_like_cpu: Check) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (
            torch.linalg.solve(a, b),
            torch.linalg.solve(a, b.mT, left=False),
            torch.linalg.solve(a[0], b[0, :, 0]),
            torch.linalg.inv(a),
        )

    assert_close_like_cpu(solve, _random(2, 17, 17), _random(2, 17, 3))


@pytest.mark.long
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_solutions_from_factors(assert_close_like_cpu: Check, left: bool, adjoint: bool) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        lu, pivots = torch.linalg.lu_factor(a)
        b = b if left else b.mT
        return torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)

    assert_close_like_cpu(solve, _random(2, 6, 6), _random(2, 6, 3))


def _hermitian(a: torch.Tensor) -> torch.Tensor:
    """A positive definite matrix from any."""
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def _beside_the_triangle(a: torch.Tensor, upper: bool) -> torch.Tensor:
    """What a factorization must not read: the other triangle, and imaginary parts of the diagonal."""
    ones = torch.ones_like(a.detach())
    return (ones.tril(-1) if upper else ones.triu(1)) + 1j * torch.eye(a.shape[-1], device=a.device)


@pytest.mark.long
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(assert_close_like_cpu: Check, upper: bool) -> None:
    def factor(a: torch.Tensor) -> torch.Tensor:
        whole = _hermitian(a)
        return torch.linalg.cholesky(whole + _beside_the_triangle(whole, upper), upper=upper)

    assert_close_like_cpu(factor, _random(2, 19, 19, dtype=torch.complex64), eager=False)


@pytest.mark.long
def test_solutions_from_cholesky_factors(assert_close_like_cpu: Check) -> None:
    def solve(lower: torch.Tensor, upper: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.cholesky_solve(b, lower), torch.cholesky_inverse(upper, True)

    lower = torch.linalg.cholesky(_hermitian(_random(2, 17, 17, grad=False)))
    assert_close_like_cpu(solve, lower, lower.mH.contiguous(), _random(2, 17, 3, grad=False))


@pytest.mark.long
def test_cholesky_of_matrices_that_are_not_definite(
    assert_close_like_cpu: Check, vk: torch.device
) -> None:
    a = _hermitian(_random(3, 7, 7, grad=False))
    a[0, 4, 4], a[1, 0, 0] = -1, 0
    assert_close_like_cpu(lambda a: torch.linalg.cholesky_ex(a).info, a)
    for function in (
        torch.linalg.cholesky,
        torch.compile(torch.linalg.cholesky, backend="torchvk"),
    ):
        with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 5"):
            function(a.to(vk))


@pytest.mark.long
def test_triangular_systems(assert_close_like_cpu: Check) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        solve_triangular = torch.linalg.solve_triangular
        return (
            solve_triangular(a, b, upper=True),
            solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
            solve_triangular(a, b[..., :1], upper=False),
        )

    a = (_random(2, 19, 19, grad=False) / 4 + 2 * torch.eye(19)).requires_grad_()
    assert_close_like_cpu(solve, a, _random(2, 19, 20))


@pytest.mark.long
def test_determinants(assert_close_like_cpu: Check) -> None:
    def determinants(a: torch.Tensor) -> Any:
        return torch.linalg.det(a), *torch.linalg.slogdet(a)

    # A permutation with a sign of its own.
    a = _random(3, 5, 5, grad=False).roll(1, -2).requires_grad_()
    assert_close_like_cpu(determinants, a)
    assert_close_like_cpu(determinants, a.detach().mT.requires_grad_())


@pytest.mark.long
def test_singular_matrices(vk: torch.device) -> None:
    zero = torch.zeros(3, 3, dtype=torch.complex64)
    for function in (torch.linalg.inv, lambda a: torch.linalg.solve(a, a)):
        with pytest.raises(torch.linalg.LinAlgError) as expected:
            function(zero)
        for run in (function, torch.compile(function, backend="torchvk")):
            with pytest.raises(torch.linalg.LinAlgError) as actual:
                run(zero.to(vk))
            assert str(actual.value) == str(expected.value)
    info = torch.linalg.lu_factor_ex(zero.to(vk)).info
    assert info.item() == torch.linalg.lu_factor_ex(zero).info.item()
