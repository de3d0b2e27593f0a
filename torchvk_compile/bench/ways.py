"""Who competes: TorchVK compiled and eager and the CPU here, CUDA and other packages in processes of their own.

In: cases. Out: open work that can be sampled, checked and trained. Forbidden: code that depends on the workload.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

import torchvk_compile
from torchvk_compile.audit import Audit
from torchvk_compile.bench import work
from torchvk_compile.bench.peers import (
    TORCHVULKAN_HINT,
    PeerProcess,
    cuda_process,
    find_torchvulkan,
)
from torchvk_compile.bench.timing import LocalSampler
from torchvk_compile.bench.workloads import Compile, Job, build, compiler, train
from torchvk_compile.plan.executor import loaded_plans

LABELS = {
    "vk-compiled": "TorchVK, compiled",
    "vk-eager": "TorchVK, eager",
    "cpu-eager": "CPU, eager",
    "cpu-inductor": "CPU, Inductor",
    "torchvulkan": "torchvulkan, eager",
    "cuda-eager": "CUDA, eager",
    "cuda-inductor": "CUDA, Inductor",
}
"""Every way there is, in the order of reports, and what people read."""

_AUDITED_STEPS = 3
_SETTLING_STEPS = 10
_QUICK_STEP_SECONDS = 0.05


class Opened(Protocol):
    """Work that a way has made ready."""

    def sample(self, calls: int) -> float:
        """See `timing.Sampler`."""

    def check(self) -> dict[str, Any]:
        """See `workloads.Job.check`."""

    def facts(self) -> dict[str, Any]:
        """What else is known: audit, memory, kernels. Plain data."""

    def close(self) -> None:
        """Give everything back."""


class Way(Protocol):
    """A way of running cases."""

    name: str

    def open(self, case: Mapping[str, Any]) -> Opened:
        """Make a case ready, compilation included."""

    def train(
        self,
        case: Mapping[str, Any],
        data: Mapping[str, torch.Tensor],
        on_epoch: Callable[[int, float], None],
    ) -> dict[str, Any]:
        """See `workloads.train`."""


class LocalWay:
    """A way of this process.

    Args:
        name: key of `LABELS`.
        device: torch device string.
        backend: of torch.compile; None for eager.
    """

    def __init__(self, name: str, device: str, backend: str | None) -> None:
        self.name = name
        self.device = device
        self.backend = backend

    @property
    def on_vulkan(self) -> bool:
        """Whether this is TorchVK itself."""
        return torch.device(self.device).type == "vk"

    def open(self, case: Mapping[str, Any]) -> LocalWork:
        """See `Way`."""
        return LocalWork(self, case)

    def train(
        self,
        case: Mapping[str, Any],
        data: Mapping[str, torch.Tensor],
        on_epoch: Callable[[int, float], None] = lambda epoch, accuracy: None,
    ) -> dict[str, Any]:
        """See `Way`. On Vulkan the outcome carries the audit of the whole training."""
        arguments = (case, data, self.device, self.compiler(), self.synchronize, on_epoch)
        if not self.on_vulkan:
            return train(*arguments)
        with torchvk_compile.audit() as audit:
            outcome = train(*arguments)
        return outcome | {"audit": _proof(audit)}

    def compiler(self) -> Compile:
        """See `workloads.compiler`."""
        return compiler(self.backend)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.on_vulkan:
            torch.vk.synchronize(self.device)  # type: ignore[attr-defined]


class LocalWork:
    """A job of this process; see `Opened`."""

    def __init__(self, way: LocalWay, case: Mapping[str, Any]) -> None:
        self.way = way
        if way.on_vulkan:
            torch.vk.empty_cache()  # type: ignore[attr-defined]
            torch.vk.reset_peak_memory_stats(way.device)  # type: ignore[attr-defined]
        before = set(loaded_plans())
        start = time.perf_counter()
        self.job: Job = build(case, way.device, way.compiler())
        self.job.step()
        way.synchronize()
        self.first_seconds = time.perf_counter() - start
        self._settle()
        self.plans = [plan for plan in loaded_plans() if plan not in before]

    def _settle(self) -> None:
        """Repeat quick work: the runtime records a plan a few times over, until calls no longer overtake the device."""
        sampler = LocalSampler(self.job.step, self.way.synchronize)
        if self.way.on_vulkan and sampler.sample(1) < _QUICK_STEP_SECONDS:
            sampler.sample(_SETTLING_STEPS)

    def sample(self, calls: int) -> float:
        """See `timing.Sampler`."""
        return LocalSampler(self.job.step, self.way.synchronize).sample(calls)

    def check(self) -> dict[str, Any]:
        """See `workloads.Job.check`."""
        return self.job.check()

    def facts(self) -> dict[str, Any]:
        """Least bytes and operations, seconds to the end of the first step; on Vulkan audit, memory and kernels."""
        facts: dict[str, Any] = {
            "first_seconds": self.first_seconds,
            "moved_bytes": self.job.moved_bytes,
            "operations": self.job.operations,
        }
        if not self.way.on_vulkan:
            return facts
        device = self.way.device
        peaks = {
            "allocated_peak_bytes": torch.vk.max_memory_allocated(device),  # type: ignore[attr-defined]
            "reserved_peak_bytes": torch.vk.max_memory_reserved(device),  # type: ignore[attr-defined]
        }
        with torchvk_compile.audit() as audit:
            self.sample(_AUDITED_STEPS)
        facts |= {"memory": peaks, "audit": _proof(audit) | {"steps": _AUDITED_STEPS}}
        if self.way.backend is not None:
            facts["kernels"] = work.kernels_of(self.plans)
        return facts

    def close(self) -> None:
        """Drop the job, its plans and its memory."""
        self.plans = []
        del self.job
        if self.way.on_vulkan:
            torch.vk.synchronize(self.way.device)  # type: ignore[attr-defined]
            torch.vk.empty_cache()  # type: ignore[attr-defined]


def _proof(audit: Audit) -> dict[str, Any]:
    """The audit's counts, and its certificate where it gives one."""
    counts = {name: value for name, value in audit.to_dict().items() if name != "entries"}
    certificate = audit.certificate().to_dict() if audit.gpu_only and audit.dispatches else None
    return {**counts, "certificate": certificate}


@dataclass(frozen=True)
class Field:
    """The ways of this machine, and why others are not there.

    Attributes:
        ways: by name, in the order of `LABELS`.
        absent: name to reason.
    """

    ways: Mapping[str, Way]
    absent: Mapping[str, str]

    def of(self, names: Sequence[str]) -> dict[str, Way]:
        """Those of `names` that are there, in the order of `LABELS`."""
        return {name: way for name, way in self.ways.items() if name in names}

    def close(self) -> None:
        """End the peers' processes."""
        for way in self.ways.values():
            if isinstance(way, PeerProcess):
                way.end()


def find_ways(device: torch.device, wanted: Container[str], *, peers: bool = True) -> Field:
    """The ways of this machine.

    Args:
        device: the vk device under test.
        wanted: names of those that are going to run; the others' processes are not started.
        peers: look for other packages, too.
    """
    ways: dict[str, Way] = {
        "vk-compiled": LocalWay("vk-compiled", str(device), "torchvk"),
        "vk-eager": LocalWay("vk-eager", str(device), None),
        "cpu-eager": LocalWay("cpu-eager", "cpu", None),
        "cpu-inductor": LocalWay("cpu-inductor", "cpu", "inductor"),
    }
    absent: dict[str, str] = {}
    starts: dict[str, Callable[[], PeerProcess]] = {}
    python = find_torchvulkan() if peers else None
    if python is None:
        absent["torchvulkan"] = TORCHVULKAN_HINT if peers else "not asked for (--no-peers)"
    else:
        starts["torchvulkan"] = functools.partial(_torchvulkan, python, device)
    for name, backend in (("cuda-eager", None), ("cuda-inductor", "inductor")):
        if torch.cuda.is_available():
            starts[name] = functools.partial(cuda_process, name, backend)
        else:
            absent[name] = "no NVIDIA GPU, or a PyTorch built without CUDA"
    with ThreadPoolExecutor(len(LABELS)) as pool:  # a process takes seconds to import torch
        started = {name: pool.submit(start) for name, start in starts.items() if name in wanted}
    for name, peer in started.items():
        try:
            ways[name] = peer.result()
        except RuntimeError as error:
            absent[name] = str(error)
    return Field({name: ways[name] for name in LABELS if name in ways}, absent)


def _torchvulkan(python: Path, device: torch.device) -> PeerProcess:
    """torchvulkan's process. Raises RuntimeError when it does not start, or chose another device."""
    peer = PeerProcess("torchvulkan", python, "torchvulkan", "vulkan")
    ours = torch.vk.get_device_name(device)  # type: ignore[attr-defined]
    if peer.device_name not in ("", ours):
        peer.end()
        raise RuntimeError(f"it chose another device: {peer.device_name}")
    return peer
