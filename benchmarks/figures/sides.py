"""Who is compared: TorchVK, and what else the machine has.

In: the device asked for. Out: sides. Forbidden: cases.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from figures.case import Place, Program


@dataclass(frozen=True)
class Side:
    """One contestant.

    Attributes:
        name: in the table.
        place: where its programs run.
        synchronize: waits for its device.
        wrap: changes a built program; captures it in a CUDA graph, for instance.
        device_seconds: mean time of the device's kernels in a run, where the device tells.
        captures: whether `wrap` captures a graph, which not every program allows.
    """

    name: str
    place: Place
    synchronize: Callable[[], None]
    wrap: Callable[[Program], Program]
    device_seconds: Callable[[Program, int], float] | None = None
    captures: bool = False


OURS = "TorchVK"


def peers() -> list[Side]:
    """CUDA's contestants where there is an NVIDIA GPU, else the CPU."""
    return _cuda() if torch.cuda.is_available() else _cpu()


def torchvulkan() -> list[Side]:
    """The package torchvulkan, which has no compiler, on its first device."""
    torchvulkan = importlib.import_module("torchvulkan")
    name = f"torchvulkan {importlib.metadata.version('torchvulkan')}"
    place = Place(torch.device("vulkan"), _as_it_is)
    return [Side(name, place, torchvulkan.synchronize, _unchanged)]


def reference_place() -> Place:
    """Where float64 results come from."""
    return Place(torch.device("cuda" if torch.cuda.is_available() else "cpu"), _as_it_is, wide=True)


def torchvk(device: torch.device) -> Side:
    """TorchVK, compiled, on a vk device."""

    def ready(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, backend="torchvk")

    def synchronize() -> None:
        torch.vk.synchronize(device)  # type: ignore[attr-defined]

    def device_seconds(program: Program, runs: int) -> float:
        from torchvk_compile.device import runtime_device

        runtime = runtime_device(device.index or 0)
        runtime.take_timings()
        runtime.set_profiling(True)
        try:
            for _ in range(runs):
                program()
            synchronize()
            return 1e-9 * sum(duration for *_, duration in runtime.take_timings()) / runs
        finally:
            runtime.set_profiling(False)

    place = Place(device, ready, compiled=True)
    return Side(OURS, place, synchronize, _unchanged, device_seconds)


def _cuda() -> list[Side]:
    # float32 means float32: convolutions would use TensorFloat-32 by default.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda")
    eager = Place(device, _as_it_is)
    inductor = Place(device, torch.compile, compiled=True)
    return [
        Side("CUDA eager", eager, torch.cuda.synchronize, _unchanged, _cuda_seconds),
        Side("CUDA Inductor", inductor, torch.cuda.synchronize, _unchanged, _cuda_seconds),
        # For programs that the host would slow down.
        Side("CUDA graph", eager, torch.cuda.synchronize, _captured, _cuda_seconds, captures=True),
    ]


def _cpu() -> list[Side]:
    return [Side("CPU eager", Place(torch.device("cpu"), _as_it_is), _no_wait, _unchanged)]


def _captured(program: Program) -> Program:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            program()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = program()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def _cuda_seconds(program: Program, runs: int) -> float:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(runs):
            program()
        torch.cuda.synchronize()
    return 1e-6 * sum(event.self_device_time_total for event in profiled.key_averages()) / runs


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _unchanged(program: Program) -> Program:
    return program


def _no_wait() -> None:
    pass
