"""Activations in eager mode: half precision rounds gradients once, and every one has a kernel."""

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


@pytest.mark.parametrize("in_place", [False, True])
def test_leaky_relu_with_random_slopes(vk: torch.device, in_place: bool) -> None:
    x = torch.tensor([-2.0, 3.0, -1.0, 0.0])
    fixed = F.rrelu(x.to(vk), 0.1, 0.3, training=False, inplace=in_place)
    torch.testing.assert_close(fixed.cpu(), F.leaky_relu(x, 0.2))
    leaf = x.to(vk).requires_grad_()
    drawn = F.rrelu(leaf.clone(), 0.1, 0.3, training=True, inplace=in_place)
    drawn.sum().backward()
    assert leaf.grad is not None
    slopes = leaf.grad.cpu()
    torch.testing.assert_close(drawn.detach().cpu(), x * slopes)
    assert slopes[1] == 1 and bool((slopes[::2] >= 0.1).all()) and bool((slopes[::2] <= 0.3).all())
