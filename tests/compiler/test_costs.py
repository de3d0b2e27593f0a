"""Bytes and floating-point operations of kernels equal what a person counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchvk_compile.plan.executor import CompiledPlan, loaded_plans

_F32 = 4


def _plan_of(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> CompiledPlan:
    """The one plan that a function compiles to."""
    torch._dynamo.reset()
    before = set(loaded_plans())
    torch.compile(function, backend="torchvk", **options)(*inputs)
    (plan,) = set(loaded_plans()) - before
    return plan


def _costs(function: Callable[..., Any], *inputs: torch.Tensor) -> list[tuple[Any, Any, Any]]:
    """(bytes read, bytes written, operations) of every dispatch."""
    steps = _plan_of(function, *inputs).plan.steps
    return [(step.read_bytes, step.written_bytes, step.flops) for step in steps]


@pytest.fixture
def x(vk: torch.device) -> torch.Tensor:
    return torch.randn(64, 32, device=vk)


N = 64 * 32


def test_operations_of_pointwise_kernels(x: torch.Tensor) -> None:
    assert _costs(lambda x: x * 2 + 1, x) == [(N * _F32, N * _F32, 2 * N)]
    assert _costs(lambda x: torch.exp(x).relu(), x) == [(N * _F32, N * _F32, 2 * N)]


def test_moves_and_selections_are_no_operations(x: torch.Tensor) -> None:
    assert _costs(lambda x: torch.where(x > 0, x, -x).half(), x) == [(N * _F32, N * 2, 0)]


def test_integers_are_no_floating_point(vk: torch.device) -> None:
    i = torch.arange(100, device=vk)
    assert _costs(lambda i: i * 3 + 1, i) == [(800, 800, 0)]


def test_a_buffer_counts_once_however_often_it_is_read(x: torch.Tensor) -> None:
    assert _costs(lambda x: x + x.roll(1, 0) + x.roll(2, 0), x) == [(N * _F32, N * _F32, 2 * N)]


def test_broadcast_and_partial_reads(x: torch.Tensor, vk: torch.device) -> None:
    row = torch.randn(32, device=vk)
    assert _costs(torch.add, x, row) == [((N + 32) * _F32, N * _F32, N)]
    assert _costs(lambda x: x[:, :8] * 2, x) == [(64 * 8 * _F32, 64 * 8 * _F32, 64 * 8)]


def test_reductions(x: torch.Tensor) -> None:
    assert _costs(lambda x: x.sum(1), x) == [(N * _F32, 64 * _F32, N)]


def test_a_gather_reads_what_it_asks_for(vk: torch.device) -> None:
    table, index = torch.randn(1000, 16, device=vk), torch.arange(10, device=vk)
    assert _costs(lambda t, i: t[i], table, index) == [(10 * 16 * _F32 + 10 * 8, 10 * 16 * _F32, 0)]


def test_an_update_in_place_reads_and_writes(x: torch.Tensor) -> None:
    def update(x: torch.Tensor) -> None:
        x.mul_(0.5)

    assert _costs(update, x) == [(N * _F32, N * _F32, N)]


def test_product_with_its_epilogue(x: torch.Tensor, vk: torch.device) -> None:
    w = torch.randn(32, 48, device=vk)
    (cost,) = _costs(lambda x, w: (x @ w).relu(), x, w)
    assert cost == ((N + 32 * 48) * _F32, 64 * 48 * _F32, 2 * N * 48 + 64 * 48)


def test_convolution(vk: torch.device) -> None:
    image, weights = torch.randn(2, 8, 10, 10, device=vk), torch.randn(16, 8, 3, 3, device=vk)
    (cost,) = _costs(F.conv2d, image, weights)
    outputs = 2 * 16 * 8 * 8
    assert cost == (
        (image.numel() + weights.numel()) * _F32,
        outputs * _F32,
        2 * outputs * 8 * 9,
    )


def test_costs_are_expressions_where_sizes_are_dynamic(x: torch.Tensor) -> None:
    plan = _plan_of(lambda x: x * 2 + 1, x, dynamic=True).plan
    (step,) = plan.steps
    for rows, columns in ((64, 32), (5, 7)):
        symbols = dict(zip(plan.symbols, (rows, columns), strict=True))
        number = plan.sizes_at([symbols[name] for name in plan.symbols])
        assert number(step.flops) == 2 * rows * columns
        assert number(step.read_bytes) == number(step.written_bytes) == rows * columns * _F32
