"""Running sums, products and extrema: every width around the workgroup's, long rows, any dimension, every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


def _tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _all_kinds(x: torch.Tensor, dim: int) -> Any:
    return (
        x.cumsum(dim),
        (x * 0.1 + 1).cumprod(dim),
        x.logcumsumexp(dim),
        *x.cummax(dim),
        *x.cummin(dim),
    )


@pytest.mark.parametrize("width", [1, 2, 31, 33, 256, 1025])
def test_rows(assert_close_like_cpu: Check, width: int) -> None:
    assert_close_like_cpu(
        lambda x: _all_kinds(x, 1), _tensor(5, width), eager=False, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(300, 3), (2, 40, 3), (64, 300)])
def test_strided_dimensions(assert_close_like_cpu: Check, shape: tuple[int, ...]) -> None:
    dim = len(shape) - 2
    assert_close_like_cpu(
        lambda x: _all_kinds(x, dim), _tensor(*shape), eager=False, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("shape", "dim"), [((20001,), 0), ((2, 9001), 1), ((8193, 2), 0)])
def test_long_rows_in_two_levels(
    assert_close_like_cpu: Check, shape: tuple[int, ...], dim: int
) -> None:
    def scan(x: torch.Tensor) -> Any:
        return (x * 2).cumsum(dim) + 1, *x.cummax(dim), x.logcumsumexp(dim)

    assert_close_like_cpu(scan, _tensor(*shape), eager=False, rtol=1e-4, atol=1e-3)


def test_infinities_and_nan(assert_close_like_cpu: Check) -> None:
    x = _tensor(4, 300)
    x[0, 7], x[1, 9], x[2, 5] = torch.inf, -torch.inf, torch.nan
    x[3] = -torch.inf
    assert_close_like_cpu(lambda x: _all_kinds(x, 1), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64]
)
def test_dtypes(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    x = (_tensor(3, 70) * 5).round().to(dtype)

    def scan(x: torch.Tensor) -> Any:
        return x.cumsum(0), x.cumsum(1), x.cumprod(0), *x.cummax(1), *x.cummin(0)

    assert_close_like_cpu(scan, x, eager=False)


def test_long_sums_of_half_precision_round_once(assert_close_like_cpu: Check) -> None:
    x = _tensor(20000).to(torch.bfloat16)
    assert_close_like_cpu(lambda x: x.cumsum(0), x, eager=False, rtol=1e-2, atol=1e-2)


def test_int64_is_exact(assert_close_like_cpu: Check) -> None:
    x = torch.randint(-(2**62), 2**62, (3, 9000), generator=torch.Generator().manual_seed(0))
    assert_close_like_cpu(lambda x: (x.cumsum(1), x.cumprod(0)), x, eager=False)


def test_fused_with_producers_reductions_and_consumers(assert_close_like_cpu: Check) -> None:
    def fused(x: torch.Tensor, bias: torch.Tensor) -> Any:
        shifted = x + bias
        running = shifted.cumsum(1)
        return running / (running[:, -1:] + 100), shifted.sum(1, keepdim=True) - running

    for width in (129, 1000):
        assert_close_like_cpu(
            fused, _tensor(6, width), _tensor(width), eager=False, rtol=1e-4, atol=1e-4
        )


def test_gradients(assert_close_like_cpu: Check) -> None:
    x = _tensor(4, 33).requires_grad_()

    def scan(x: torch.Tensor) -> Any:
        return x.cumsum(1), x.cumprod(0), x.logcumsumexp(1), x.cummax(1).values

    assert_close_like_cpu(scan, x, rtol=1e-4, atol=1e-4)


def test_degenerate_shapes_and_other_dtypes_on_request(assert_close_like_cpu: Check) -> None:
    def scan(x: torch.Tensor, scalar: torch.Tensor) -> Any:
        empty = x[:0]
        return (
            empty.cumsum(0),
            empty.cumsum(1),
            scalar.cumsum(0),
            *scalar.cummax(0),
            x.cumsum(1, dtype=torch.float64),
            x[:, ::2].cumsum(0),
            x.t().cumsum(-1),
        )

    assert_close_like_cpu(scan, _tensor(3, 6), torch.tensor(2.0))


def test_dynamic_lengths(assert_close_like_cpu: Check) -> None:
    for width in (40, 700):
        assert_close_like_cpu(
            lambda x: (x.cumsum(1), x.cumsum(0)),
            _tensor(3, width),
            dynamic=True,
            atol=1e-4,
            rtol=1e-4,
        )


def test_a_constant_without_dimensions(assert_close_like_cpu: Check) -> None:
    def add(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        five = torch.full((), 5, device=x.device)
        return x + five.cumsum(0), (x > 0).all().cumsum(0), five.cumsum(-1, dtype=torch.int32)

    assert_close_like_cpu(add, torch.ones(3), eager=False)
