"""Gradients of activations in eager mode: half precision rounds once, and every one has a kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

ACTIVATIONS = (
    *("mish", "silu", "gelu", "softplus", "hardswish", "elu", "selu", "celu", "logsigmoid"),
    *("tanhshrink", "softshrink", "hardshrink", "hardsigmoid", "leaky_relu", "softsign"),
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_in_half_precision(vk: torch.device, name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(500, generator=generator).mul(3).to(dtype) for _ in range(2))

    def gradient(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        getattr(F, name)(x).backward(grad)
        assert x.grad is not None
        return x.grad.cpu()

    actual = gradient(x.to(vk), grad.to(vk)).double()
    expected = gradient(x.clone(), grad).double()
    exact = gradient(x.double(), grad.double())
    # One rounding of the result, and a few of float32 before it.
    step = torch.finfo(dtype).eps * 0.55 * exact.abs() + 1e-6
    near = (actual - exact).abs() <= torch.maximum(step, (expected - exact).abs())
    assert bool(near.all()), (
        f"{name}: {int((~near).sum())} elements, {(actual - exact).abs().max()}"
    )
