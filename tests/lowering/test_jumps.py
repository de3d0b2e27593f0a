"""Operators that jump see 16-bit floats as they are stored, also within a fused kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]

pytestmark = pytest.mark.usefixtures("fresh_graphs")

DTYPES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_value_equals_itself_where_it_is_computed_twice(
    assert_close_like_cpu: Check, dtype: torch.dtype
) -> None:
    """The gradient of a largest magnitude looks for the elements that have it."""
    x = torch.randn(6, 9).to(dtype).requires_grad_()
    assert_close_like_cpu(
        lambda x: torch.linalg.vector_norm(x * 1.1, float("inf"), -1), x, eager=False
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_and_roundings_of_computed_values(
    assert_close_like_cpu: Check, dtype: torch.dtype
) -> None:
    def jumps(x: torch.Tensor, y: torch.Tensor) -> Any:
        product = x * 1.01
        return (
            product == x,
            product > y,
            product <= y,
            (x * 10).floor(),
            (x * 10).round(),
            (x * 10).to(torch.int32),
            (x * 1e-30 * 1e-20).bool(),
            torch.sign(x * 1e-30 * 1e-20),
            torch.isinf(x * 1e30 * 1e20),
            (x * 1.01).argmax(-1),
        )

    x = torch.linspace(0.01, 3, 600).reshape(3, 200).to(dtype)
    assert_close_like_cpu(jumps, x, (x * 1.01).flip(-1), eager=False)
