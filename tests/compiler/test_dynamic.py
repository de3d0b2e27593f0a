"""Sizes that change from call to call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend


def test_a_smaller_last_batch_recompiles_at_most_once(vk: torch.device) -> None:
    counter = CompileCounterWithBackend("torchvk")
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(vk)
    compiled = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend=counter)
    for batch in (32, 32, 32, 20, 32, 20, 11, 5):
        x, y = torch.randn(batch, 8), torch.randint(0, 3, (batch,))
        loss = compiled(x.to(vk), y.to(vk))
        loss.backward()
        expected = F.cross_entropy(model.cpu()(x), y)
        model.to(vk)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("rows", [2, 3, 255, 257, 1000])
def test_every_size_with_one_graph(vk: torch.device, rows: int) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined = torch.cat([x, y], 0)
        return joined * 2, joined.sum(0), joined.softmax(1), x.t() @ y

    x, y = torch.randn(rows, 5), torch.randn(rows, 5)
    results = torch.compile(function, backend="torchvk", dynamic=True)(x.to(vk), y.to(vk))
    for result, expected in zip(results, function(x, y), strict=True):
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_sizes_of_intermediates_follow(vk: torch.device) -> None:
    compiled = torch.compile(
        lambda x: (x.view(-1, 2).sum(1).exp() + 1).sum(), backend="torchvk", dynamic=True
    )
    for size in (4, 10, 4, 2048, 6):
        x = torch.randn(size)
        torch.testing.assert_close(
            compiled(x.to(vk)).cpu(), (x.view(-1, 2).sum(1).exp() + 1).sum(), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    "mode", ["nearest", "bilinear", pytest.param("area", marks=pytest.mark.long)]
)
def test_sizes_by_a_factor_follow(vk: torch.device, mode: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=0.6, mode=mode)

    compiled = torch.compile(function, backend="torchvk", dynamic=True)
    for size in (6, 11):
        x = torch.randn(2, 3, size, size + 3)
        torch.testing.assert_close(compiled(x.to(vk)).cpu(), function(x), rtol=1e-4, atol=1e-4)


def test_a_number_from_the_device_decides_on_the_host(vk: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 0 else x - 1

    compiled = torch.compile(function, backend="torchvk")
    for x in (torch.ones(5), -torch.ones(5)):
        torch.testing.assert_close(compiled(x.to(vk)).cpu(), function(x))
