"""Kernels that do not need each other's results share a dispatch: counts, order, results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torchvk_compile
from torchvk_compile.codegen import combined

_SHAPES = [(128, 64), (128,), (10, 64), (10,), (3, 3, 5, 7), (), (64, 64)]

_OPTIMIZERS: dict[str, tuple[type, dict[str, Any], int]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}, 1),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, 1),
    "adam": (torch.optim.Adam, {"capturable": True}, 2),
    "amsgrad": (torch.optim.Adam, {"capturable": True, "amsgrad": True}, 2),
    "adamw": (torch.optim.AdamW, {"capturable": True}, 2),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True, "capturable": True}, 1),
}


def _reset(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="torchvk", **options)


def _dispatches(function: Any, *arguments: Any) -> int:
    with torchvk_compile.audit() as audit:
        function(*arguments)
    return audit.dispatches


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_an_optimizer_step_is_a_few_dispatches(vk: torch.device, name: str) -> None:
    optimizer, settings, dispatches = _OPTIMIZERS[name]
    generator = torch.Generator().manual_seed(0)
    initial = [torch.randn(shape, generator=generator) for shape in _SHAPES]
    ours = [nn.Parameter(t.to(vk)) for t in initial]
    reference = [nn.Parameter(t.clone()) for t in initial]
    on_vk = optimizer(ours, foreach=True, **settings)
    on_cpu = optimizer(reference, **{k: v for k, v in settings.items() if k != "capturable"})
    update = _reset(lambda: on_vk.step())
    for _ in range(3):
        for a, b in zip(ours, reference, strict=True):
            b.grad = torch.randn(b.shape, generator=generator)
            a.grad = b.grad.to(vk)
        counted = _dispatches(update)
        on_cpu.step()
    assert counted == dispatches
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-5, atol=1e-6)


def test_a_long_table_is_split(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined, "_TABLE_BYTES", 256)
    tensors = [torch.randn(4 * n, generator=torch.Generator().manual_seed(n)) for n in range(1, 31)]
    double = _reset(lambda *xs: torch._foreach_mul(xs, 2.0))
    with torch._inductor.config.patch(force_disable_caches=True):
        results = double(*(t.to(vk) for t in tensors))
    for result, tensor in zip(results, tensors, strict=True):
        assert torch.equal(result.cpu(), 2 * tensor)
    # Two pointers, a size and two group numbers: 32 bytes a part.
    assert _dispatches(double, *(t.to(vk) for t in tensors)) == 4


def test_eager_foreach_is_one_dispatch(vk: torch.device) -> None:
    tensors = [torch.full((n, 4), float(n), device=vk) for n in range(1, 9)]
    others = [torch.ones(n, 4, device=vk) for n in range(1, 9)]
    torch._foreach_add_(tensors, others, alpha=2)
    assert _dispatches(lambda: torch._foreach_add_(tensors, others, alpha=2)) == 1
    for n, tensor in enumerate(tensors, start=1):
        assert torch.equal(tensor.cpu(), torch.full((n, 4), n + 4.0))


def test_results_that_are_needed_come_first(vk: torch.device) -> None:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = a.sum(1)  # small kernels on both sides of ones that need them
        second = b.sum(0)
        third = (first.softmax(0).unsqueeze(1) * a).amax(0)
        fourth = (second.softmax(0) * b).mean(1)
        return third.cumsum(0), fourth.sort().values, c.exp(), c.sum(), first + second.sum()

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(33, 17, generator=generator) for _ in range(3)]
    results = _reset(function)(*(t.to(vk) for t in inputs))
    for result, expected in zip(results, function(*inputs), strict=True):
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_what_is_overwritten_is_read_before(vk: torch.device) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = a.sum()
        column = b.flip(0)
        a.mul_(2)
        b.copy_(a.t())
        after = a.sum(), b.flip(1)
        a.t().add_(b)
        return before, column, *after

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(9, 9, generator=generator) for _ in range(2)]
    ours = [t.to(vk) for t in inputs]
    results = [*_reset(function)(*ours), *ours]
    expected = [*function(*inputs), *inputs]
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result.cpu(), reference, rtol=1e-5, atol=1e-5)


def test_dynamic_sizes(vk: torch.device) -> None:
    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t.sin() for t in tensors) + tuple(t.sum(1) for t in tensors)

    compiled = _reset(function, dynamic=True)
    for rows in (3, 700, 2, 64):
        generator = torch.Generator().manual_seed(rows)
        inputs = [torch.randn(rows + i, rows % 97 + i, generator=generator) for i in range(3)]
        results = compiled(*(t.to(vk) for t in inputs))
        for result, expected in zip(results, function(*inputs), strict=True):
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=2e-5)


def test_misaligned_and_empty_parts(vk: torch.device) -> None:
    whole = torch.arange(1000.0, device=vk)
    parts = [whole[1:400], whole[400:403], whole[403:403], whole[512:1000]]
    results = _reset(lambda *xs: torch._foreach_add(xs, 1.0))(*parts)
    for result, part in zip(results, parts, strict=True):
        assert torch.equal(result.cpu(), part.cpu() + 1)


def test_values_of_the_host_reach_every_part(vk: torch.device) -> None:
    tensors = [torch.ones(n, device=vk) for n in (4, 5, 300)]
    scale = _reset(lambda xs, s: torch._foreach_mul(xs, s))
    for value in (2.0, 3.5):
        results = scale(tensors, torch.tensor(value))
        assert all(torch.equal(r.cpu(), torch.full(r.shape, value)) for r in results)
