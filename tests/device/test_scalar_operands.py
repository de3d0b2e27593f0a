"""A 0-d CPU tensor is a number to the device, wherever it stands in a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "subtract": lambda number, x: number - x,
    "divide": lambda number, x: number / (x + 1),
    "compare": lambda number, x: number < x,
    "maximum": lambda number, x: torch.maximum(number, x),
    "where": lambda number, x: torch.where(x > 1, number, x),
    "behind": lambda number, x: x * number,
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CALLS)
def test_result_lives_on_the_device(vk: torch.device, name: str, compiled: bool) -> None:
    call = CALLS[name]
    run = torch.compile(call, backend="torchvk") if compiled else call
    tensor = torch.arange(4.0)
    for number in (torch.tensor(2.0), torch.tensor(-0.5)):
        result = run(number, tensor.to(vk))
        assert result.device == vk
        expected = call(number, tensor)
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result.cpu(), expected)


def test_integers_and_booleans(vk: torch.device) -> None:
    tensor = torch.arange(4)
    for number in (torch.tensor(3), torch.tensor(True)):
        result = (
            number - tensor.to(vk) if number.dtype is not torch.bool else number & tensor.to(vk)
        )
        expected = number - tensor if number.dtype is not torch.bool else number & tensor
        assert result.device == vk and result.dtype == expected.dtype
        assert torch.equal(result.cpu(), expected)
