"""Pooling agrees with CPU eager: values, places and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchvk_compile.lowering import pooling

aten = torch.ops.aten
Check = Callable[..., None]


pytestmark = pytest.mark.usefixtures("fresh_graphs")


POOLS: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "max, one dimension": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 3, 11)),
    "max, one dimension, no batch": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 6)),
    "max": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 8, 9)),
    "max, dilated, ceil": (
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), dilation=(1, 2), ceil_mode=True),
        (2, 3, 8, 9),
    ),
    "max, three dimensions": (lambda x: F.max_pool3d(x, 2, 2, ceil_mode=True), (2, 3, 5, 6, 7)),
    "average, ceil": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (2, 3, 8, 9),
    ),
    "average, overhanging": (lambda x: F.avg_pool1d(x, 7, 3, ceil_mode=True), (1, 2, 9)),
    "average, wide": (lambda x: F.avg_pool2d(x, 11, 3, 5), (1, 2, 17, 16)),
    "average, three dimensions": (
        lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
        (2, 3, 5, 6, 7),
    ),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (2, 3, 8, 9)),
    "adaptive average, three dimensions": (
        lambda x: F.adaptive_avg_pool3d(x, (3, 5, 2)),
        (2, 3, 8, 9, 5),
    ),
    "adaptive max": (lambda x: F.adaptive_max_pool2d(x, (3, 5)), (2, 3, 8, 9)),
    "adaptive max, even": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), (2, 3, 8, 9)),
    "lp": (lambda x: F.lp_pool2d(x, 3, 3, 2), (2, 3, 8, 9)),
    "unpool": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        (2, 3, 8, 8),
    ),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(assert_close_like_cpu: Check, name: str) -> None:
    function, size = POOLS[name]
    x = torch.randn(*size, requires_grad=True)
    assert_close_like_cpu(function, x, rtol=1e-4, atol=1e-5, eager=False, dynamic=False)


def test_fractional(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(
        lambda x, r: F.fractional_max_pool2d(x, 2, output_size=(4, 4), _random_samples=r),
        torch.randn(2, 3, 8, 9, requires_grad=True),
        torch.rand(2, 3, 2),
        eager=False,
        dynamic=False,
    )


def test_fractional_volumes(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(
        lambda x, r: F.fractional_max_pool3d(x, 2, output_size=(4, 4, 3), _random_samples=r),
        torch.randn(2, 3, 8, 9, 7, requires_grad=True),
        torch.rand(2, 3, 3),
        eager=False,
        dynamic=False,
    )


def test_places_of_maxima(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
        torch.randn(2, 3, 8, 9),
        eager=False,
        dynamic=False,
    )


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("with_padding", [False, True])
@pytest.mark.parametrize("override", [None, 7])
def test_averages_of_windows(ceil: bool, with_padding: bool, override: int | None) -> None:
    arguments = (3, 4, 2), (2, 3, 2), (1, 2, 0), ceil, with_padding, override
    x = torch.randn(2, 3, 7, 8, 9)
    expected = aten.avg_pool3d(x, *arguments)
    torch.testing.assert_close(pooling.average_pool(x, *arguments), expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(
        pooling.average_pool_gradient(grad, x, *arguments),
        aten.avg_pool3d_backward(grad, x, *arguments),
    )


def test_adaptive_maxima_from_gathers() -> None:
    x = torch.randn(2, 3, 7, 8, 9)
    for size in ((3, 5, 4), (7, 1, 20)):
        for actual, expected in zip(
            pooling.adaptive_maximum(x, size), aten.adaptive_max_pool3d(x, size), strict=True
        ):
            torch.testing.assert_close(actual, expected)


def test_adaptive_averages_of_windows() -> None:
    x, grad = torch.randn(2, 3, 7, 8, 9), torch.randn(2, 3, 3, 5, 4)
    torch.testing.assert_close(
        pooling.adaptive_average(x, (3, 5, 4)), aten._adaptive_avg_pool3d(x, (3, 5, 4))
    )
    torch.testing.assert_close(
        pooling.adaptive_average_gradient(grad, x, 3),
        aten._adaptive_avg_pool3d_backward(grad, x),
    )
