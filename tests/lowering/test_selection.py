"""Elements selected by a condition: indices of fixed number, sources and values under masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


def _tensor(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (4, 5)])
def test_nonzero_static(assert_close_like_cpu: Check, shape: tuple[int, ...]) -> None:
    def places(x: torch.Tensor) -> Any:
        return [torch.nonzero_static(x > 0, size=size, fill_value=-7) for size in (0, 3, 30)]

    assert_close_like_cpu(places, _tensor(*shape), eager=shape == (4, 5))


def test_masked_scatter(assert_close_like_cpu: Check) -> None:
    def fill(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return torch.masked_scatter(x, mask, source)

    x, source = _tensor(4, 5).requires_grad_(), (_tensor(3, 8) + 1).requires_grad_()
    assert_close_like_cpu(fill, x, _tensor(4, 5) > 0, source)
    assert_close_like_cpu(fill, x, _tensor(5) > 0, source, eager=False)


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_of_values_under_a_mask(assert_close_like_cpu: Check, accumulate: bool) -> None:
    def put(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.index_put(x, (mask,), values, accumulate=accumulate)

    x, mask = _tensor(5, 4).requires_grad_(), torch.tensor([True, False, True, False, True])
    assert_close_like_cpu(put, x, mask, _tensor(4).requires_grad_())


@pytest.mark.parametrize("shape", [(6, 4), (9, 4), (5,)])
def test_gradients_of_many_values_under_a_mask(
    assert_close_like_cpu: Check, shape: tuple[int, ...]
) -> None:
    def put(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put((mask,), values, accumulate=True)

    x, mask = _tensor(*shape).requires_grad_(), _tensor(*shape) > -0.5
    values = torch.arange(float(mask.sum())).requires_grad_()
    assert_close_like_cpu(put, x, mask, values, dynamic=True)


def test_gradients_of_a_filling_number(assert_close_like_cpu: Check) -> None:
    def fill(x: torch.Tensor, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.index_fill(x, 0, index, value)

    index = torch.tensor([1, 3, 1])
    assert_close_like_cpu(fill, _tensor(5, 4).requires_grad_(), index, _tensor().requires_grad_())


def test_take_with_one_index(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(torch.take, _tensor(2, 3).requires_grad_(), torch.tensor(-2))
