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
