"""Reductions: every width around the workgroup's, every axis, every kind, NaN and ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Check = Callable[..., None]
WIDTHS = [1, 2, 7, 8, 9, 31, 32, 33, 64, 127, 255, 256, 257, 1000, 1023, 1024, 1025, 5000]


def _tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _all_kinds(x: torch.Tensor, dim: int) -> Any:
    return (
        x.sum(dim),
        x.mean(dim),
        x.amax(dim),
        x.amin(dim),
        x.argmax(dim),
        x.argmin(dim),
        (x > 0).any(dim),
        (x > -9).all(dim),
        (x * 0.05 + 1).prod(dim),
        x.var(dim, correction=0),
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_rows(assert_close_like_cpu: Check, width: int) -> None:
    assert_close_like_cpu(
        lambda x: _all_kinds(x, 1), _tensor(5, width), eager=False, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_columns(assert_close_like_cpu: Check, width: int) -> None:
    assert_close_like_cpu(
        lambda x: _all_kinds(x, 0), _tensor(width, 5), eager=False, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(9, 31, 17), (2, 300, 3), (1, 1, 1), (64, 2, 65)])
def test_middle_and_outer_axes(assert_close_like_cpu: Check, shape: tuple[int, ...]) -> None:
    def reduce(x: torch.Tensor) -> Any:
        return x.sum(1), x.amax((0, 2)), x.mean((1, 2)), x.argmax(1), x.softmax(1), x.sum()

    assert_close_like_cpu(reduce, _tensor(*shape), eager=False, rtol=1e-4, atol=1e-4)


def test_a_large_tensor_to_one_number(assert_close_like_cpu: Check) -> None:
    def reduce(x: torch.Tensor) -> Any:
        return x.sum(), x.amax(), x.mean(), x.std(), x.argmax(), x.norm()

    assert_close_like_cpu(reduce, _tensor(1_000_003), eager=False, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("width", [5, 32, 100, 1025])
def test_values_of_a_row_are_used_again_after_its_reduction(
    assert_close_like_cpu: Check, width: int
) -> None:
    def normalise(x: torch.Tensor) -> Any:
        weight = torch.linspace(0.5, 2, width, device=x.device)
        return (
            F.softmax(x, -1),
            F.log_softmax(x, -1),
            F.layer_norm(x, (width,), weight),
            x / x.norm(dim=-1, keepdim=True),
        )

    assert_close_like_cpu(normalise, _tensor(6, width), eager=False, rtol=1e-4, atol=1e-5)


def test_nan_wins_and_the_first_one_is_found(assert_close_like_cpu: Check) -> None:
    x = _tensor(6, 300)
    x[0, 7] = x[0, 250] = x[1, 299] = x[2, 0] = float("nan")
    x[3] = float("nan")
    x[4, 3] = float("inf")
    x[5] = float("-inf")

    def reduce(x: torch.Tensor) -> Any:
        return x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.max(), x.sum(1), x.max(0).indices

    assert_close_like_cpu(reduce, x, eager=False)


def test_the_first_of_equal_values_is_found(assert_close_like_cpu: Check) -> None:
    x = torch.randint(0, 3, (7, 1500)).float()
    assert_close_like_cpu(
        lambda x: (x.argmax(1), x.argmin(1), x.argmax(0), x.argmax()), x, eager=False
    )


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
)
def test_integers_are_exact(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    if dtype is torch.bool:
        x = torch.rand(9, 700, generator=torch.Generator().manual_seed(0)) > 0.99
    else:
        info = torch.iinfo(dtype)
        x = torch.randint(info.min // 2, info.max // 2, (9, 700), dtype=dtype)

    def reduce(x: torch.Tensor) -> Any:
        return (
            x.sum(1),
            x.amax(1),
            x.amin(0),
            x.any(1),
            x.all(0),
            x.sum(),
            x.sum(0, dtype=torch.int32),
        )

    assert_close_like_cpu(reduce, x, eager=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    x = _tensor(9, 500).to(dtype)
    assert_close_like_cpu(lambda x: (x.sum(1), x.amax(0), x.mean(), x.argmin(1)), x, eager=False)


def test_reductions_of_nothing(assert_close_like_cpu: Check) -> None:
    def reduce(x: torch.Tensor) -> Any:
        return x.sum(), x.sum(0), x.prod(), x.any(), x.all(), x.mean(), x.sum(1)

    assert_close_like_cpu(reduce, torch.empty(0, 4), eager=False)


def test_softmax_of_masked_rows(assert_close_like_cpu: Check) -> None:
    x = _tensor(4, 40)
    x[1, 5:] = float("-inf")
    x[2] = float("-inf")
    assert_close_like_cpu(lambda x: (x.softmax(1), torch.logsumexp(x, 1)), x, eager=False)


def test_gradients_of_reductions(assert_close_like_cpu: Check) -> None:
    x = _tensor(6, 65).requires_grad_()
    assert_close_like_cpu(
        lambda x: (x.softmax(1), x.amax(1), x.var(0), F.layer_norm(x, (65,))),
        x,
        eager=False,
        rtol=1e-4,
        atol=1e-5,
    )


def test_reductions_of_dynamic_length(assert_close_like_cpu: Check) -> None:
    for width in (3, 70, 1025):
        assert_close_like_cpu(
            lambda x: (x.sum(1), x.softmax(1), x.argmax(0)),
            _tensor(6, width),
            eager=False,
            dynamic=True,
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("dim", [(0, 1), (1,), (0,)])
def test_variances_far_from_zero(vk: torch.device, dim: tuple[int, ...]) -> None:
    x = _tensor(600, 515) * 1e-2 + 1e4
    expected = torch.var_mean(x.double(), dim)
    for function in (torch.var_mean, torch.compile(torch.var_mean, backend="torchvk")):
        actual = [result.cpu().double() for result in function(x.to(vk), dim)]
        torch.testing.assert_close(actual, list(expected), rtol=2e-6, atol=0)


def test_variances_of_odd_rows(assert_close_like_cpu: Check) -> None:
    def moments(x: torch.Tensor, empty: torch.Tensor) -> Any:
        return (
            *torch.var_mean(x, 1, keepdim=True),
            *torch.std_mean(x[:1], 0, correction=0),
            *torch.std_mean(empty),
            *torch.var_mean(empty, 1, keepdim=True),
            *torch.var_mean(x.to(torch.bfloat16), (0, 1)),
        )

    x = _tensor(4, 40)
    x[1, 0], x[2, 5], x[3, 0] = torch.inf, -torch.inf, torch.nan
    assert_close_like_cpu(moments, x, torch.empty(3, 0))


def test_positions_of_extrema_as_indices(assert_close_like_cpu: Check) -> None:
    def look_up(x: torch.Tensor, table: torch.Tensor) -> Any:
        place = x.argmax(-1)
        return table[place] * place, table.gather(0, x.argmin(-1))

    assert_close_like_cpu(look_up, _tensor(4, 6), _tensor(10), eager=False)
