"""`torch.autocast("vk")` picks torch's dtypes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_operators_get_their_dtype(vk: torch.device, dtype: torch.dtype) -> None:
    model, inputs = nn.Linear(8, 3).to(vk), torch.randn(4, 8, device=vk)
    with torch.autocast("vk", dtype=dtype):
        outputs = model(inputs)
        assert outputs.dtype is dtype
        assert (inputs @ inputs.t()).dtype is dtype
        assert outputs.softmax(-1).dtype is torch.float32
        assert outputs.sum().dtype is torch.float32
        assert F.mse_loss(outputs, torch.zeros(4, 3, device=vk)).dtype is torch.float32
        assert (inputs + 1).dtype is torch.float32
        with torch.autocast("vk", enabled=False):
            assert model(inputs).dtype is torch.float32
    assert model(inputs).dtype is torch.float32
    expected = model(inputs)
    torch.testing.assert_close(outputs.float().cpu(), expected.detach().cpu(), rtol=0.05, atol=0.05)


def test_gradients_have_the_parameters_dtype(vk: torch.device) -> None:
    model = nn.Linear(8, 3).to(vk)
    with torch.autocast("vk", dtype=torch.bfloat16):
        loss = model(torch.ones(2, 8, device=vk)).float().sum()
    loss.backward()
    assert model.weight.grad is not None
    assert model.weight.grad.dtype is torch.float32
    assert model.weight.grad.tolist() == [[2.0] * 8] * 3


def test_other_devices_are_left_alone(vk: torch.device) -> None:
    with torch.autocast("vk", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_unsafe_loss_is_refused(vk: torch.device) -> None:
    with torch.autocast("vk", dtype=torch.float16), pytest.raises(RuntimeError, match="unsafe"):
        F.binary_cross_entropy(torch.ones(2, device=vk), torch.ones(2, device=vk))
