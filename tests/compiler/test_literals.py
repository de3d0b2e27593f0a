"""Numbers written in the program: zeros of either sign, numbers beyond float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


def _signs(results: Any) -> list[torch.Tensor]:
    """1 over each result, which tells zeros apart, beside the results."""
    return [part for result in results for part in (result, 1 / result)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_sums_with_a_zero(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def add(x: torch.Tensor) -> Any:
        sums = (x + 0.0, 0.0 + x, x + (-0.0), x + 0, torch.add(x, x, alpha=0.0))
        return _signs((*sums, x - 0.0, x - (-0.0), 0.0 - x, -0.0 - x, 0 - x))

    x = torch.tensor([-0.0, 0.0, 1.0, -1.0, torch.inf, torch.nan], dtype=dtype)
    assert_close_like_cpu(add, x, eager=dtype is torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_the_first_of_two_zeros_counts(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def choose(x: torch.Tensor) -> Any:
        zero = torch.zeros_like(x)
        clamped = (x.clamp(min=0.0), x.clamp(max=-0.0), x.clamp(0.0, 6.0), torch.relu(x))
        extrema = (torch.maximum(x, zero), torch.minimum(zero, x), torch.nn.functional.relu6(x))
        return _signs((*clamped, *extrema))

    # Fewer elements than a vector of the CPU holds, whose own kernels take either zero.
    x = torch.tensor([-0.0, 0.0, -1e-30, torch.nan], dtype=dtype)
    assert_close_like_cpu(choose, x, eager=dtype is torch.float32)


def test_numbers_beyond_float32(assert_close_like_cpu: Check) -> None:
    def scale(x: torch.Tensor) -> Any:
        return x * 1e300, x - torch.inf, x * 1e300 - torch.inf

    assert_close_like_cpu(scale, torch.tensor([1.0, -2.0, 0.0, torch.inf]))


def test_numbers_that_are_one_float32(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(lambda x: (x * 0.1, x + 0.10000000149), torch.ones(3), eager=False)
