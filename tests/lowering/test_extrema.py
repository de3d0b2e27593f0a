"""Places of extrema in few long rows: every operator, ties, NaN, lengths that leave an incomplete part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchvk_compile.lowering import extrema

Check = Callable[..., None]


@pytest.mark.parametrize("length", [8192, 400_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_long_rows(assert_close_like_cpu: Check, length: int, dtype: torch.dtype) -> None:
    numbers = torch.arange(2 * length).mul(7919).remainder(10_007)
    # Many ties; the extremum stands in each row several times.
    x = (numbers.clamp(50, 9_000) - 5000).to(dtype).reshape(2, length)
    if dtype is torch.bool:
        x[:, : length // 2] = False

    def places(x: torch.Tensor) -> Any:
        y = x.to(torch.uint8) if x.dtype is torch.bool else x
        places = y.argmax(-1), y.argmin(-1, keepdim=True), y.t().argmax(0), y.argmax(), y.argmin()
        return (*places, *x.max(-1), *x.min(-1, keepdim=True), *x.t().max(0))

    assert_close_like_cpu(places, x, eager=False)


def test_the_first_nan_wins_and_infinities_are_numbers(assert_close_like_cpu: Check) -> None:
    x = torch.full((3, 50_001), -torch.inf)
    x[1, 40_000] = x[1, 49_999] = torch.nan
    x[2, 7] = torch.inf

    def places(x: torch.Tensor) -> Any:
        return x.argmax(1), x.argmin(1), x.argmax(), (-x).argmin(1), *x.max(1)

    assert_close_like_cpu(places, x, eager=False)


def test_rows_are_split_where_there_are_too_few() -> None:
    assert extrema.parts_of_row(rows=1, length=1 << 26, units=36) == 144
    assert extrema.parts_of_row(rows=10, length=1 << 20, units=36) == 14
    assert extrema.parts_of_row(rows=1000, length=1 << 20, units=36) == 1
    assert extrema.parts_of_row(rows=1, length=5000, units=36) == 1
