"""Operators in 16 bits round where their results are stored; a conversion in the program rounds wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("fresh_graphs")

_HALVES = [torch.float16, torch.bfloat16]
Function = Callable[[torch.Tensor], torch.Tensor]


def _smoothed_loss(x: torch.Tensor) -> torch.Tensor:
    target = torch.arange(len(x), device=x.device) % x.shape[1]
    return F.cross_entropy(x, target, label_smoothing=0.15, reduction="none")


_OPERATORS: dict[str, Function] = {
    "cross-entropy": _smoothed_loss,
    "entropy": lambda x: -(x.softmax(1) * x.log_softmax(1)).sum(1),
    "divergence": lambda x: F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="none"),
    "gated": lambda x: F.gelu(x) - F.silu(x),
    "group norm": lambda x: F.group_norm(x[None], 4, eps=0.1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]) - x,
}


@pytest.mark.parametrize("dtype", _HALVES)
@pytest.mark.parametrize("name", _OPERATORS)
def test_results_and_gradients_are_nearer_to_the_truth_than_on_the_cpu(
    vk: torch.device, name: str, dtype: torch.dtype
) -> None:
    x, direction = torch.randn(8, 33).to(dtype), torch.randn(8, 33).to(dtype)

    def both(function: Function, place: Any) -> list[torch.Tensor]:
        own = x.to(place).requires_grad_()
        result = function(own)
        along = direction.reshape(-1)[: result.numel()].reshape(result.shape).to(place)
        return [result.detach(), *torch.autograd.grad(result, own, along.to(result.dtype))]

    function = _OPERATORS[name]
    exact = both(function, torch.float64)
    mine = both(torch.compile(function, backend="torchvk"), vk)
    theirs = both(function, "cpu")
    for own, other, truth in zip(mine, theirs, exact, strict=True):
        assert own.dtype == dtype
        assert (own.cpu() - truth).abs().mean() <= (other - truth).abs().mean()


_CONVERSIONS: dict[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "to": lambda x, dtype: x.to(dtype),
    "type_as": lambda x, dtype: x.type_as(x.new_zeros(1, dtype=dtype)),
    "copy_": lambda x, dtype: torch.empty_like(x, dtype=dtype).copy_(x),
    "prims": lambda x, dtype: torch.ops.prims.convert_element_type(x, dtype),
}


@pytest.mark.parametrize("dtype", _HALVES)
@pytest.mark.parametrize("name", _CONVERSIONS)
def test_conversions_round_within_a_kernel(vk: torch.device, name: str, dtype: torch.dtype) -> None:
    convert = _CONVERSIONS[name]

    def lost(x: torch.Tensor) -> torch.Tensor:
        return convert(x, dtype).float() - x

    x = torch.randn(1000)
    actual = torch.compile(lost, backend="torchvk")(x.to(vk)).cpu()
    torch.testing.assert_close(actual, lost(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", _HALVES)
def test_conversions_of_sums_round(vk: torch.device, dtype: torch.dtype) -> None:
    def narrow(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = x.mean(1).to(dtype)
        return mean.float(), mean.mul(3).float()

    x = torch.randn(64, 4).to(dtype).float()
    wide, scaled = torch.compile(narrow, backend="torchvk")(x.to(vk))
    assert torch.equal(wide.cpu(), x.mean(1).to(dtype).float())
    assert torch.equal(scaled.cpu(), wide.cpu() * 3)


def test_conversions_of_autocast_round(vk: torch.device) -> None:
    def lost(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return x @ x.new_ones(1, 1)

    x = torch.randn(100, 1)
    actual = torch.compile(lost, backend="torchvk")(x.to(vk)).cpu()
    assert torch.equal(actual, x.bfloat16())
