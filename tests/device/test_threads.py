"""Threads that meet operators, compile graphs and call compiled ones, all at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

_COMPILERS = 3
_EAGER = 3
_OPERATORS = (torch.sinh, torch.erf, torch.log1p, torch.expm1, torch.rsqrt, torch.frac)


def _together(works: list[Callable[[], None]]) -> None:
    """Run functions on threads that begin at the same time; raise what one of them raised."""
    ready = threading.Barrier(len(works))

    def begin(work: Callable[[], None]) -> None:
        ready.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(begin, work) for work in works]:
            done.result()


def _meet_operators(device: torch.device, dtype: torch.dtype, extent: int) -> None:
    """Call operators that were not called for this dtype and number of dimensions before, backward passes too."""
    x = torch.linspace(0.1, 0.9, extent, dtype=torch.float32).to(dtype)
    shape = (1,) * (extent - 2) + (extent,)
    for operator in _OPERATORS:
        leaf = x.to(device).view(shape).requires_grad_()
        found = operator(leaf)
        found.sum().backward()
        expected_leaf = x.float().view(shape).requires_grad_()
        expected = operator(expected_leaf)
        expected.sum().backward()
        tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype.itemsize < 4 else {}
        torch.testing.assert_close(found.cpu().float(), expected, **tolerance)
        assert leaf.grad is not None and expected_leaf.grad is not None
        torch.testing.assert_close(leaf.grad.cpu().float(), expected_leaf.grad, **tolerance)


def _train_compiled(device: torch.device, width: int) -> None:
    """Compile and run a training step, forward, backward and update."""
    generator = torch.Generator().manual_seed(width)
    model = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 4))
    ours = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 4))
    ours.load_state_dict(model.state_dict())
    ours.to(device)
    x = torch.randn(16, 8, generator=generator)
    compiled = torch.compile(ours, backend="torchvk")
    for _ in range(2):
        for module, inputs in ((model, x), (compiled, x.to(device))):
            module(inputs).square().mean().backward()
        for there, here in zip(ours.parameters(), model.parameters(), strict=True):
            assert there.grad is not None
            torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-5)


def test_operators_are_met_while_other_threads_compile(vk: torch.device) -> None:
    torch.compile(lambda x: x + 1, backend="torchvk")(torch.ones(1, device=vk))
    plain_call = nn.Module.__call__
    works: list[Callable[[], None]] = []
    for index in range(_EAGER):
        dtype = (torch.float32, torch.float16, torch.bfloat16)[index]
        works.append(lambda dtype=dtype: _meet_operators(vk, dtype, 5))  # type: ignore[misc]
    for index in range(_COMPILERS):
        works.append(lambda width=16 + index: _train_compiled(vk, width))  # type: ignore[misc]
    _together(works)
    assert nn.Module.__call__ is plain_call


def test_compiled_graphs_are_called_while_operators_are_met(vk: torch.device) -> None:
    model = nn.Linear(4, 4).to(vk)
    compiled = torch.compile(model, backend="torchvk")
    x = torch.ones(2, 4, device=vk)
    expected = compiled(x).cpu()
    met = threading.Event()

    def call() -> None:
        calls = 0
        while not met.is_set() or calls == 0:
            assert torch.equal(compiled(x).cpu(), expected)
            calls += 1

    def meet() -> None:
        try:
            _meet_operators(vk, torch.float32, 6)
        finally:
            met.set()

    _together([call, meet])
