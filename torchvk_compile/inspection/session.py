"""`inspect()`: call a compiled model a few times, and tell what it became.

In: a compiled callable and its inputs. Out: an `Inspection`.
Forbidden: leaving the model other than it was: gradients, buffers and random numbers stay as before.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torchvk_compile import versions
from torchvk_compile.errors import UsageError
from torchvk_compile.inspection.collect import Window, device_reports
from torchvk_compile.inspection.model import DeviceReport, Inspection
from torchvk_compile.profiling.recording import Recorder

DEFAULT_RUNS = 5


def inspect(
    compiled: Callable[..., Any], *inputs: Any, runs: int = DEFAULT_RUNS, subject: str = ""
) -> Inspection:
    """What a compiled model or function became on the device it runs on.

    Calls it once, so that it is compiled, and `runs` times for the times; if a result requires a gradient, the
    backward graph runs as often. Parameters' gradients, the buffers of a module and the state of the random
    number generators are afterwards what they were before; other side effects of the callable are its own.

    Args:
        compiled: what `torch.compile` returned, with TorchVK's backend.
        inputs: its arguments.
        runs: calls to measure.
        subject: heading of the report; by default the callable's name.

    Raises:
        UsageError: `runs` is not positive, or nothing ran on a vk device.
        UnsupportedOperatorError: the model contains an operator without a kernel.
    """
    if runs < 1:
        raise UsageError(f"inspect: runs={runs} is not a positive whole number")
    with _state_kept(compiled):
        reports = _measure(compiled, inputs, runs)
    if not reports:
        raise UsageError(
            f"inspect: {_name(compiled)} ran nothing on a vk device. Was it made with "
            'torch.compile(…, backend="torchvk"), and are its inputs there?'
        )
    return Inspection(subject or _name(compiled), versions.versions(), reports)


def _measure(
    compiled: Callable[..., Any], inputs: Sequence[Any], runs: int
) -> tuple[DeviceReport, ...]:
    _backward(compiled(*inputs))
    windows: list[Window] = []
    recorder = Recorder(annotations=False)
    recorder.start()
    try:
        for _ in range(runs):
            begin = time.perf_counter_ns()
            outputs = compiled(*inputs)
            windows.append((begin, time.perf_counter_ns()))
            backward = _prepared_backward(outputs)
            if backward is not None:
                begin = time.perf_counter_ns()
                backward()
                windows.append((begin, time.perf_counter_ns()))
            del outputs, backward
    finally:
        recording = recorder.stop()
    return device_reports(recording, windows, runs)


def _backward(outputs: Any) -> None:
    backward = _prepared_backward(outputs)
    if backward is not None:
        backward()


def _prepared_backward(outputs: Any) -> Callable[[], object] | None:
    """The backward pass from all results at once, with gradients of ones; None if none requires a gradient."""
    roots = [
        output
        for output in tree_leaves(outputs)
        if isinstance(output, torch.Tensor) and output.requires_grad and output.grad_fn is not None
    ]
    leaves = _leaves([root.grad_fn for root in roots])
    if not leaves:
        return None
    ones = [torch.ones_like(root) for root in roots]
    return lambda: torch.autograd.grad(roots, leaves, ones, allow_unused=True)


def _leaves(functions: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors whose gradients the backward pass from these functions would add to."""
    found: dict[int, torch.Tensor] = {}
    seen, waiting = set(functions), list(functions)
    while waiting:
        function = waiting.pop()
        variable = getattr(function, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return list(found.values())


@contextlib.contextmanager
def _state_kept(compiled: Callable[..., Any]) -> Iterator[None]:
    buffers = list(compiled.buffers()) if isinstance(compiled, torch.nn.Module) else []
    before = [copy.copy(buffer).detach().clone() for buffer in buffers]
    with torch.random.fork_rng(device_type="vk"):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in zip(buffers, before, strict=True):
                    buffer.copy_(value)


def _name(compiled: Callable[..., Any]) -> str:
    original = getattr(compiled, "_orig_mod", compiled)
    if isinstance(original, torch.nn.Module):
        return type(original).__name__
    return getattr(original, "__name__", type(original).__name__)
