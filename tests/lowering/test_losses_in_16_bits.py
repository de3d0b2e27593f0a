"""Losses in 16 bits are rounded once, and not between their steps as well."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("fresh_graphs")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_loss_of_logits_is_rounded_once(vk: torch.device, dtype: torch.dtype) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(x, y, pos_weight=weight, reduction="none")

    tensors = [(3 * torch.randn(8, 9)).to(dtype) for _ in range(3)]
    actual = torch.compile(loss, backend="torchvk")(*[tensor.to(vk) for tensor in tensors])
    exact = loss(*[tensor.double() for tensor in tensors])
    torch.testing.assert_close(actual.cpu().double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_logits_and_targets_are_rounded_once(
    vk: torch.device, dtype: torch.dtype
) -> None:
    def gradients(
        x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        leaves = [tensor.detach().requires_grad_() for tensor in (x, y)]
        loss = F.binary_cross_entropy_with_logits(*leaves, pos_weight=weight, reduction="none")
        return torch.autograd.grad(loss, leaves, torch.ones_like(loss))

    tensors = [(3 * torch.randn(64, 9)).to(dtype) for _ in range(3)]
    compiled = torch.compile(gradients, backend="torchvk")
    actual = compiled(*[tensor.to(vk) for tensor in tensors])
    for own, exact in zip(actual, gradients(*[tensor.double() for tensor in tensors]), strict=True):
        bound = torch.finfo(dtype).eps
        torch.testing.assert_close(own.cpu().double(), exact, rtol=bound, atol=1e-4)
