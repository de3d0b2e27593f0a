"""Pointwise work after a matrix product runs inside its kernel; what cannot does not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_matmul import check, values

from torchvk_compile.plan.executor import loaded_plans

pytestmark = pytest.mark.usefixtures("seeded")


def dispatches(fn: Callable[..., Any], *inputs: torch.Tensor, device: torch.device) -> list[str]:
    """Compare `fn` with the CPU and return the kernels its plans run, in order."""
    gc.collect()
    before = {id(compiled) for compiled in loaded_plans()}
    compiled = torch.compile(fn, backend="torchvk", dynamic=False)
    check(fn, *inputs, device=device, compiled=compiled)
    return [
        step.kernel
        for loaded in loaded_plans()
        if id(loaded) not in before
        for step in loaded.plan.steps
    ]


MATRICES = ((50, 24), (24, 70))


@pytest.mark.parametrize(
    "epilogue",
    [
        lambda y, other, row: torch.relu(y + row),
        lambda y, other, row: F.gelu(y),
        lambda y, other, row: y * other + other,
        lambda y, other, row: torch.where(y > 0, other, row) - other.abs().sqrt(),
        lambda y, other, row: y + torch.arange(70, device=y.device) * row,
        lambda y, other, row: (torch.tanh(y), y.half(), y > other),
        lambda y, other, row: (y * other).half() + row.half(),
        lambda y, other, row: y.view(50, 7, 10).permute(1, 0, 2) * 2,
    ],
    ids=["bias-relu", "gelu", "residual", "where", "index", "outputs", "casts", "heads"],
)
def test_one_kernel(vk: torch.device, epilogue: Callable[..., Any]) -> None:
    def fused(a: Any, b: Any, other: Any, row: Any) -> Any:
        return epilogue(a @ b, other, row)

    inputs = [values(*size) for size in (*MATRICES, (50, 70), (70,))]
    assert len(dispatches(fused, *inputs, device=vk)) == 1


def test_linear_layer_in_half_precision(vk: torch.device) -> None:
    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return F.relu(F.linear(x, weight, bias))

    inputs = [values(*size, dtype=torch.float16) for size in ((50, 24), (70, 24), (70,))]
    assert len(dispatches(layer, *inputs, device=vk)) == 1


def test_batched_scores(vk: torch.device) -> None:
    def scores(q: Any, k: Any, mask: Any) -> Any:
        return (q @ k.mT * 0.125).masked_fill(mask > 1, -1e4) + mask

    kernels = dispatches(
        scores, values(2, 3, 20, 16), values(2, 3, 33, 16), values(20, 33), device=vk
    )
    assert len(kernels) == 1


def test_gather_in_the_epilogue(vk: torch.device) -> None:
    def fused(a: Any, b: Any, table: Any, rows: Any) -> Any:
        return a @ b + table[rows] * 2

    inputs = [values(*size) for size in (*MATRICES, (9, 70))]
    rows = torch.randint(0, 9, (50,))
    assert len(dispatches(fused, *inputs, rows, device=vk)) == 1


def test_reductions_stay_outside(vk: torch.device) -> None:
    def function(a: Any, b: Any) -> Any:
        y = a @ b
        return y.relu(), y.sum(1), y.sum()

    kernels = dispatches(function, *(values(*size) for size in MATRICES), device=vk)
    assert len(kernels) > 1


def test_another_order_of_the_elements_stays_outside(vk: torch.device) -> None:
    def function(a: Any, b: Any, other: Any) -> Any:
        return (a @ b).t() + other

    check(function, *(values(*size) for size in (*MATRICES, (70, 50))), device=vk)


def test_product_of_products(vk: torch.device) -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        return torch.relu(a @ b) @ c

    kernels = dispatches(function, values(20, 30), values(30, 40), values(40, 10), device=vk)
    assert len(kernels) == 2


def test_epilogue_overwrites_its_input(vk: torch.device) -> None:
    def function(a: Any, b: Any, other: Any) -> Any:
        return other.add_(a @ b)

    a, b, other = (values(*size) for size in (*MATRICES, (50, 70)))
    on_device = other.to(vk)
    torch.compile(function, backend="torchvk")(a.to(vk), b.to(vk), on_device)
    torch.testing.assert_close(on_device.cpu(), other + a @ b, rtol=1e-5, atol=1e-5)


def test_residual_that_is_also_an_operand(vk: torch.device) -> None:
    def function(x: Any, weight: Any) -> Any:
        x = x * 2
        return x + x @ weight

    check(function, values(40, 40), values(40, 40), device=vk)


def test_dead_inputs_are_overwritten(vk: torch.device) -> None:
    def function(a: Any, b: Any, other: Any) -> Any:
        scale = other.mean(1, keepdim=True)
        other = (other * scale).sin()
        return torch.relu(a @ b) * other + other.sum()

    check(function, *(values(*size) for size in (*MATRICES, (50, 70))), device=vk)


def test_equal_layers_share_one_kernel(vk: torch.device) -> None:
    def function(x: Any, first: Any, second: Any, third: Any) -> Any:
        for weight in (first, second, third):
            x = torch.relu(x @ weight)
        return x

    kernels = dispatches(function, values(20, 32), *(values(32, 32) for _ in range(3)), device=vk)
    assert len(kernels) == 3 and len(set(kernels)) == 1
