"""Random numbers in compiled graphs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def test_the_seed_decides_and_calls_differ(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: (torch.rand_like(x), torch.randn_like(x)), backend="torchvk")
    x = torch.empty(1000, device=vk)
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    again = compiled(x)
    assert torch.equal(first[0].cpu(), again[0].cpu()) and torch.equal(
        first[1].cpu(), again[1].cpu()
    )
    assert not torch.equal(first[0].cpu(), second[0].cpu())


def test_distributions(vk: torch.device) -> None:
    def draw(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.rand_like(x),
            torch.randn_like(x),
            torch.randint(3, 9, x.shape, device=x.device),
        )

    torch.manual_seed(0)
    uniform, normal, whole = (
        t.cpu() for t in torch.compile(draw, backend="torchvk")(torch.empty(200_000, device=vk))
    )
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.005 and abs(uniform.var() - 1 / 12) < 0.002
    assert abs(normal.mean()) < 0.01 and abs(normal.std() - 1) < 0.01
    assert sorted(whole.unique().tolist()) == [3, 4, 5, 6, 7, 8]


def test_dropout_drops_the_same_elements_forward_and_backward(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.3), backend="torchvk")
    x = torch.ones(100_000, device=vk, requires_grad=True)
    torch.manual_seed(0)
    y = compiled(x)
    y.sum().backward()
    kept = y.detach().cpu() != 0
    assert abs(kept.float().mean() - 0.7) < 0.01
    torch.testing.assert_close(y.detach().cpu()[kept], torch.full((int(kept.sum()),), 1 / 0.7))
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), y.detach().cpu())


def test_two_dropouts_of_one_graph_are_independent(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: (F.dropout(x, 0.5), F.dropout(x, 0.5)), backend="torchvk")
    one, other = compiled(torch.ones(10_000, device=vk))
    agreement = ((one != 0) == (other != 0)).cpu().float().mean()
    assert abs(agreement - 0.5) < 0.05


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float16])
def test_whole_numbers_inside_a_graph(vk: torch.device, dtype: torch.dtype) -> None:
    def draw(x: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.clone().geometric_(0.25), x.clone().bernoulli_(p), x.clone().bernoulli_(0.25)

    x, p = torch.zeros(20_000, dtype=dtype, device=vk), torch.full((20_000,), 0.25, device=vk)
    trials, *events = torch.compile(draw, backend="torchvk")(x, p)
    assert trials.dtype is dtype and trials.min().item() == 1
    assert abs(trials.double().cpu().mean() - 4) < 0.2
    assert abs((trials == 1).double().cpu().mean() - 0.25) < 0.02
    for event in events:
        assert event.dtype is dtype and abs(event.double().cpu().mean() - 0.25) < 0.02


def test_random_fills_inside_a_graph(vk: torch.device) -> None:
    def fill(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        slopes = torch.nn.functional.rrelu(x - 1, 0.1, 0.3, training=True)
        return x.clone().uniform_(2, 4), x.clone().normal_(2, 4), slopes

    compiled = torch.compile(fill, backend="torchvk")
    even, normal, slopes = (result.cpu() for result in compiled(torch.zeros(4000, device=vk)))
    assert 2 <= float(even.min()) < 2.1 and 3.9 < float(even.max()) < 4
    assert abs(float(normal.mean()) - 2) < 0.3 and abs(float(normal.std()) - 4) < 0.3
    assert -0.3 <= float(slopes.min()) < -0.29 and -0.11 < float(slopes.max()) <= -0.1
