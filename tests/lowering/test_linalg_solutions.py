"""Least squares, LDL factors, exponentials and powers of matrices, and what torch composes of other operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares(assert_close_like_cpu: Check, driver: str) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        tall = torch.linalg.lstsq(a, b, driver=driver)
        wide = torch.linalg.lstsq(a.mT, b[..., :3, :], driver=driver)
        return *tall, *wide, *torch.linalg.lstsq(a[0], b[0, :, 0], driver=driver)

    a, b = _random(2, 5, 3, dtype=torch.float64), _random(2, 5, 2, dtype=torch.float64)
    compiled = driver == "gelsy"
    assert_close_like_cpu(solve, a.requires_grad_(), b.requires_grad_(), compiled=compiled)


@pytest.mark.parametrize("driver", ["gelsy", "gelss"])
def test_least_squares_without_full_rank(assert_close_like_cpu: Check, driver: str) -> None:
    a = _random(6, 2, dtype=torch.float64) @ _random(2, 4, dtype=torch.float64)
    b = torch.arange(12, dtype=torch.float64).reshape(6, 2)
    assert_close_like_cpu(
        lambda a, b: torch.linalg.lstsq(a, b, driver=driver), a, b, compiled=False
    )


def test_least_squares_refuses_what_it_cannot_solve(vk: torch.device) -> None:
    a = torch.tensor([[1.0, 0], [0, 0], [0, 0]])
    with pytest.raises(torch.linalg.LinAlgError) as expected:
        torch.linalg.lstsq(a, a, driver="gels")
    with pytest.raises(torch.linalg.LinAlgError) as actual:
        torch.linalg.lstsq(a.to(vk), a.to(vk), driver="gels")
    assert str(actual.value) == str(expected.value)
    with pytest.raises(RuntimeError, match="driver"):
        torch.linalg.lstsq(a.to(vk), a.to(vk), driver="gelsz")
    with pytest.raises(RuntimeError, match="3 equations"):
        torch.linalg.lstsq(a.to(vk), a[:2].to(vk))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_symmetric_indefinite_systems(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def solve(a: torch.Tensor, b: torch.Tensor) -> Any:
        factors, pivots, info = torch.linalg.ldl_factor_ex(a)
        return factors, pivots, info, torch.linalg.ldl_solve(factors, pivots, b)

    a = _random(3, 19, 19, dtype=dtype)
    a = a + a.mT
    # Without elements on the diagonal only blocks of two rows can be eliminated.
    a[0].diagonal().zero_()
    a[1].diagonal().add_(20)
    narrow = dtype is torch.float32
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if narrow else {}
    assert_close_like_cpu(solve, a, _random(19, 2, dtype=dtype), compiled=narrow, **tolerance)
    assert_close_like_cpu(torch.linalg.ldl_factor_ex, torch.zeros(2, 3, 3), compiled=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    """Norms from far below one to where many squarings follow, in one batch."""
    scales = torch.tensor([1e-6, 0.3, 1.0, 4.0], dtype=dtype)
    a = _random(4, 5, 5, dtype=dtype) * scales[:, None, None]
    narrow = dtype is torch.float32
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if narrow else {}
    assert_close_like_cpu(torch.matrix_exp, a.requires_grad_(), compiled=narrow, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_exponentials_in_16_bits(vk: torch.device, dtype: torch.dtype) -> None:
    """They are rounded once. CPU eager computes in 16 bits, and has no numbers here."""
    a = (3 * _random(4, 5, 5, dtype=torch.float32)).to(dtype)
    expected = torch.matrix_exp(a.double()).to(dtype)
    for exponential in (torch.matrix_exp, torch.compile(torch.matrix_exp, backend="torchvk")):
        actual = exponential(a.to(vk)).cpu()
        torch.testing.assert_close(actual, expected, rtol=torch.finfo(dtype).eps, atol=1e-3)


def test_exponentials_of_special_matrices(assert_close_like_cpu: Check) -> None:
    nilpotent = torch.tensor([[0.0, 1e6], [0, 0]])
    negative = torch.tensor([[-50.0, 1], [0, -80]])
    assert_close_like_cpu(torch.matrix_exp, torch.stack([nilpotent, negative]), compiled=False)
    assert_close_like_cpu(torch.matrix_exp, torch.zeros(2, 0, 0), compiled=False)


def test_compositions(assert_close_like_cpu: Check) -> None:
    def everything(a: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> Any:
        return (
            torch.linalg.matrix_power(a, 3),
            torch.linalg.matrix_power(a, -2),
            torch.linalg.multi_dot([a, b, b.mT, a]),
            torch.linalg.tensorinv(a.reshape(2, 2, 4)),
            torch.linalg.tensorsolve(a.reshape(2, 2, 4), v.reshape(2, 2)),
            torch.linalg.vander(v),
            torch.linalg.cross(b[:3], b[1:]),
            torch.linalg.vector_norm(v, 3),
            torch.linalg.norm(a),
            torch.linalg.matrix_norm(a, 1),
            torch.logdet(a @ a.mT),
        )

    a = (_random(4, 4, dtype=torch.float64) + 3 * torch.eye(4)).requires_grad_()
    b, v = _random(4, 3, dtype=torch.float64), torch.arange(4.0, dtype=torch.float64)
    assert_close_like_cpu(everything, a, b.requires_grad_(), v.requires_grad_())
