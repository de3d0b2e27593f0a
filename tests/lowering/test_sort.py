"""Order: sort, topk, kthvalue, medians, mode, quantiles; short and long rows, every dtype, ties, NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
]


def _with_ties(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Few distinct values; floats with NaN, infinities and both zeros."""
    generator = torch.Generator().manual_seed(0)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point:
        x = (torch.randn(shape, generator=generator) * 3).round() / 2
        flat = x.view(-1)
        flat[::7], flat[::11], flat[::13] = torch.nan, -0.0, torch.inf
        return x.to(dtype)
    limits = torch.iinfo(dtype)
    x = torch.randint(-50, 50, shape, generator=generator)
    x.view(-1)[::9], x.view(-1)[::17] = limits.min, limits.max
    return x.to(dtype)


def _both_ways(x: torch.Tensor, dim: int) -> Any:
    return (
        *torch.sort(x, dim=dim, stable=True),
        *torch.sort(x, dim=dim, stable=True, descending=True),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_in_short_and_long_rows(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def order(short: torch.Tensor, long: torch.Tensor) -> Any:
        return *_both_ways(short, 1), *torch.sort(long, stable=True)

    assert_close_like_cpu(
        order, _with_ties(2, 300, dtype=dtype), _with_ties(2500, dtype=dtype), eager=False
    )


@pytest.mark.parametrize("width", [1, 2, 3, 64, 65, 1025, 2048, 2049])
def test_widths(assert_close_like_cpu: Check, width: int) -> None:
    x = _with_ties(3, width, dtype=torch.float32)
    assert_close_like_cpu(lambda x: torch.sort(x, dim=1, stable=True), x, eager=False)


def test_many_rows_and_other_dimensions(assert_close_like_cpu: Check) -> None:
    def order(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (
            *torch.sort(x, dim=0, stable=True),
            *torch.sort(x, dim=1, stable=True, descending=True),
            *torch.sort(y.transpose(0, 2)[::2], dim=1, stable=True),
            torch.argsort(y * 2, stable=True) + 1,
        )

    assert_close_like_cpu(
        order, _with_ties(300, 5, 3, dtype=torch.float32), _with_ties(5, 17, 9, dtype=torch.int32)
    )


def test_long_strided_rows(assert_close_like_cpu: Check) -> None:
    x = _with_ties(5000, 3, dtype=torch.float32)
    assert_close_like_cpu(lambda x: torch.sort(x, dim=0, stable=True), x, eager=False)


def _distinct(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return (order.reshape(shape) - count // 2).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_selection(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def select(x: torch.Tensor, with_nan: torch.Tensor) -> Any:
        return (
            *x.topk(4, 1),
            *x.topk(3, 0, largest=False),
            *x.kthvalue(3, 0, keepdim=True),
            *x.median(1),
            x.median(),
            *with_nan.median(1, keepdim=True),
            *with_nan.nanmedian(1),
            with_nan.nanmedian(),
        )

    x = _distinct(5, 33, dtype=dtype)
    with_nan = x.clone()
    if dtype.is_floating_point:
        with_nan[1, 4] = with_nan[1, 7] = with_nan[2, 0] = torch.nan
    assert_close_like_cpu(select, x, with_nan)


def test_selection_from_long_rows(assert_close_like_cpu: Check) -> None:
    def select(x: torch.Tensor) -> Any:
        return *x.topk(5, 0), *x.kthvalue(77, 0), *x.median(0), x.msort()[:3]

    assert_close_like_cpu(select, _distinct(3000, 2), eager=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_ties_are_selected(
    vk: torch.device, dtype: torch.dtype, largest: bool
) -> None:
    short, long = _with_ties(5, 97, dtype=dtype), _with_ties(2, 5000, dtype=dtype)

    def select(x: torch.Tensor, count: int) -> Any:
        return x.topk(count, 1, largest)

    compiled = torch.compile(select, backend="torchvk")
    for x, count in ((short, 1), (short, 64), (short, 97), (long, 3), (long, 50)):
        values, indices = compiled(x.to(vk), count)
        expected = torch.sort(x, dim=1, stable=True, descending=largest)
        assert torch.equal(indices.cpu(), expected.indices[:, :count])
        bits = x.gather(1, indices.cpu()).view(torch.uint8)
        assert torch.equal(values.cpu().view(torch.uint8), bits)


@pytest.mark.parametrize("width", [1, 8, 255, 1024, 1025, 2048, 2049, 40000])
def test_selection_from_rows_of_any_width(vk: torch.device, width: int) -> None:
    x = _with_ties(3, width, dtype=torch.float32).t()
    count = min(width, 7)
    select = torch.compile(lambda x: (*x.topk(count, 0), *x.kthvalue(count, 0)), backend="torchvk")
    _, indices, _, index = select(x.to(vk))
    down = torch.sort(x, dim=0, stable=True, descending=True)
    up = torch.sort(x, dim=0, stable=True)
    assert torch.equal(indices.cpu(), down.indices[:count])
    assert torch.equal(index.cpu(), up.indices[count - 1])


def test_selection_from_rows_of_changing_width(vk: torch.device) -> None:
    select = torch.compile(lambda x: x.topk(5, 1).indices, backend="torchvk", dynamic=True)
    for width in (5, 63, 700, 3000):
        x = _with_ties(4, width, dtype=torch.float32)
        expected = torch.sort(x, dim=1, stable=True, descending=True).indices[:, :5]
        assert torch.equal(select(x.to(vk)).cpu(), expected)


def test_mode_takes_the_smallest_of_the_most_frequent(assert_close_like_cpu: Check) -> None:
    def mode(x: torch.Tensor) -> Any:
        return *x.mode(1), *x.mode(0, keepdim=True), *x.float().mode(-1)

    x = torch.randint(0, 4, (6, 9), generator=torch.Generator().manual_seed(0))
    assert_close_like_cpu(mode, x)


def test_quantiles(assert_close_like_cpu: Check) -> None:
    def quantiles(x: torch.Tensor, q: torch.Tensor) -> Any:
        return x.quantile(q, dim=0), x.nanquantile(0.3, dim=1), x.quantile(0.5)

    x, q = _distinct(20, 7), torch.tensor([0.0, 0.1, 0.77, 1.0])
    assert_close_like_cpu(quantiles, x, q, compiled=False)


def test_gradients_follow_the_order(assert_close_like_cpu: Check) -> None:
    x = _distinct(4, 33).requires_grad_()

    def select(x: torch.Tensor) -> Any:
        return x.sort(1).values, x.topk(5).values, x.median(1).values, x.kthvalue(3, 1).values

    assert_close_like_cpu(select, x, eager=False)


def test_degenerate_shapes(assert_close_like_cpu: Check) -> None:
    def order(x: torch.Tensor, scalar: torch.Tensor) -> Any:
        return (
            *x[:0].sort(1),
            *x[:, :0].sort(1),
            *scalar.sort(),
            *scalar.topk(1),
            *scalar.median(0),
            *x.topk(0, 1),
            *x[:, :1].sort(1),
        )

    assert_close_like_cpu(order, torch.randn(3, 4), torch.tensor(2.0))


def test_dynamic_lengths(assert_close_like_cpu: Check) -> None:
    for width in (40, 700, 2600):
        x = _with_ties(3, width, dtype=torch.float32)
        assert_close_like_cpu(
            lambda x: torch.sort(x, dim=1, stable=True), x, dynamic=True, eager=False
        )
