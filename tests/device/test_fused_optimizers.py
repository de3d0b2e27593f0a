"""Fused optimizers and gradient scaling: the same parameters as on the CPU, step after step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

OPTIMIZERS = [
    (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    (torch.optim.Adam, {"betas": (0.0, 0.99), "maximize": True}),
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
]


def twins(vk: torch.device, dtype: torch.dtype) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The same parameters on the CPU and on the device."""
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator).to(dtype) for shape in ((3, 4), (5,))]
    return [nn.Parameter(v.clone()) for v in values], [nn.Parameter(v.to(vk)) for v in values]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_steps_like_the_cpu(kind: type, options: dict[str, Any], vk: torch.device) -> None:
    reference, ours = twins(vk, torch.float32)
    plain, fused = kind(reference, lr=0.1, **options), kind(ours, lr=0.1, fused=True, **options)
    for step in range(3):
        for group in (*plain.param_groups, *fused.param_groups):
            group["lr"] = 0.1 / (step + 1)
        for theirs, mine in zip(reference, ours):
            theirs.grad = torch.randn(theirs.shape)
            mine.grad = theirs.grad.to(vk)
        plain.step()
        fused.step()
    for theirs, mine in zip(reference, ours):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype, vk: torch.device) -> None:
    reference, ours = twins(vk, dtype)
    for parameters in (reference, ours):
        optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=True)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
    for theirs, mine in zip(reference, ours):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach())


def test_rate_may_be_a_tensor(vk: torch.device) -> None:
    reference, ours = twins(vk, torch.float32)
    for parameters in (reference, ours):
        device = parameters[0].device
        optimizer = torch.optim.Adam(parameters, lr=torch.tensor(0.1, device=device), fused=True)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    for theirs, mine in zip(reference, ours):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach())


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_compiled_step(kind: type, vk: torch.device) -> None:
    reference, ours = twins(vk, torch.float32)
    plain, fused = kind(reference, lr=0.1), kind(ours, lr=0.1, fused=True)
    step = torch.compile(lambda: fused.step(), backend="torchvk")
    for _ in range(3):
        for theirs, mine in zip(reference, ours):
            theirs.grad = torch.full_like(theirs, 0.5)
            mine.grad = theirs.grad.to(vk)
        plain.step()
        step()
    for theirs, mine in zip(reference, ours):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=2e-6, atol=1e-6)


def scaled_training(device: torch.device, fused: bool, bad: int) -> tuple[list[torch.Tensor], Any]:
    """Three steps with a gradient scaler, of which step `bad` has an infinite gradient."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(p.to(device)) for p in (torch.randn(3, 4), torch.randn(5))]
    optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0, growth_interval=2)
    for step in range(4):
        loss = torch.stack([(p * p).sum() for p in parameters]).sum()
        scaler.scale(loss).backward()
        if step == bad:
            parameters[0].grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in parameters], scaler.state_dict()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bad", [0, 2])
def test_gradient_scaling_skips_the_bad_step(fused: bool, bad: int, vk: torch.device) -> None:
    expected, state = scaled_training(torch.device("cpu"), False, bad)
    found, found_state = scaled_training(vk, fused, bad)
    for theirs, mine in zip(expected, found):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=1e-6)
    assert found_state == state


def test_scale_grows_up_to_the_largest_number(vk: torch.device) -> None:
    scale = torch.full((), 2.0**127, device=vk)
    tracker = torch.ones((), dtype=torch.int32, device=vk)
    fine = torch.zeros((), device=vk)
    torch._amp_update_scale_(scale, tracker, fine, 2.0, 0.5, 2)
    assert (scale.item(), tracker.item()) == (2.0**127, 0)


def test_float16_autocast_training_with_a_scaler(vk: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(vk)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("vk")
    x, labels = torch.randn(32, 8).to(vk), (torch.arange(32) % 3).to(vk)
    losses = []
    for _ in range(8):
        with torch.autocast("vk", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert norm.isfinite()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
