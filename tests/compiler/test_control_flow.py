"""Branches and loops that depend on data: the condition is read by the host, the work stays on the device."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import while_loop

import torchvk_compile


def _branch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = (x @ weight).relu()
    z = torch.cond(y.sum() > 3, lambda y: (y * 2).sin(), lambda y: y.softmax(-1) - 1, (y,))
    return (z + y).sum(0)


@pytest.mark.parametrize("scale", [0.0, 1.0, -1.0, 4.0])
def test_a_branch_and_its_gradient(vk: torch.device, scale: float) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(5, 6) * scale, torch.randn(6, 7)
    compiled = torch.compile(_branch, backend="torchvk")
    found = []
    for function, device in ((_branch, "cpu"), (compiled, "vk")):
        leaf = weight.detach().to(device).requires_grad_()
        result = function(x.to(device), leaf)
        result.pow(2).sum().backward()
        found.append((result.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(found[1], found[0])


def test_a_branch_runs_on_the_gpu_only(vk: torch.device) -> None:
    compiled = torch.compile(_branch, backend="torchvk")
    x, weight = torch.randn(5, 6).to(vk), torch.randn(6, 7).to(vk)
    compiled(x, weight)
    with torchvk_compile.audit() as audit:
        compiled(x, weight)
    assert audit.gpu_only


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loop(vk: torch.device, count: int) -> None:
    def power(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        def going_on(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < steps

        def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, (y @ x).tanh()

        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(going_on, step, (start, x * 2))[1] + 1

    torch.manual_seed(0)
    x, steps = torch.randn(4, 4), torch.tensor(count)
    expected = power(x, steps)
    compiled = torch.compile(power, backend="torchvk", fullgraph=True)
    torch.testing.assert_close(compiled(x.to(vk), steps.to(vk)).cpu(), expected)


def test_a_branch_inside_a_branch(vk: torch.device) -> None:
    def sign(x: torch.Tensor) -> torch.Tensor:
        def negative_or_zero(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() < 0, lambda x: x.cos() - 2, lambda x: x * 0.5, (x,))

        return torch.cond(x.sum() > 0, lambda x: x.sin() + 2, negative_or_zero, (x,)) * 3

    compiled = torch.compile(sign, backend="torchvk")
    for value in (-1.0, 0.0, 1.0):
        x = torch.full((5,), value)
        torch.testing.assert_close(compiled(x.to(vk)).cpu(), sign(x))
