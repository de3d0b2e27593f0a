"""Sums over a recording: time by kernel, by phase of compilation, by kind of transfer.

In: a `Recording`. Out: small dataclasses, largest first. Forbidden: formatting.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torchvk_compile.profiling.attribution import operators_of, places_of
from torchvk_compile.profiling.recording import KernelRun, Recording, innermost
from torchvk_compile.profiling.spans import Span

PHASES = ("Dynamo", "AOTAutograd", "Inductor", "Slang", "pipelines")
"""Phases of compilation, outermost first. Each one's time is without those inside it."""


@dataclasses.dataclass
class KernelTotal:
    """All runs of one kernel of one graph.

    Attributes:
        graph: name of the plan.
        kernel: entry point.
        operators, places: what it computes, and the lines it comes from.
        configuration: the tile it was written with; empty for loop kernels.
        annotations: names of the ``record_function`` blocks it was called in.
        calls: number of runs.
        total_ns: of all runs.
        nbytes, flops: of all runs; see `GraphPlan.steps`.
    """

    graph: str
    kernel: str
    operators: list[str]
    places: list[str]
    configuration: str = ""
    annotations: list[str] = dataclasses.field(default_factory=list)
    calls: int = 0
    total_ns: float = 0.0
    nbytes: int = 0
    flops: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The sums as plain data."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class TransferTotal:
    """All transfers of one kind; `total_ns` is time of the host, which downloads spend waiting."""

    kind: str
    calls: int = 0
    nbytes: int = 0
    total_ns: int = 0


def kernel_totals(recording: Recording) -> list[KernelTotal]:
    """Time by kernel, longest first."""
    totals: dict[tuple[str, str], KernelTotal] = {}
    for run in recording.kernels:
        plan, step = run.plan.plan, run.step
        key = (run.plan.runtime_name, step.kernel)
        total = totals.get(key)
        if total is None:
            (tile,) = (k.configuration for k in plan.kernels if k.name == step.kernel)
            total = totals[key] = KernelTotal(plan.name, step.kernel, [], [], tile)
        for texts, more in (
            (total.operators, operators_of(plan, step)),
            (total.places, places_of(plan, step)),
            (total.annotations, [innermost(recording.annotations, run.call.begin_ns)]),
        ):
            texts += [text for text in more if text and text not in texts]
        nbytes, flops = work_of(run)
        total.calls += 1
        total.total_ns += run.duration_ns
        total.nbytes += nbytes
        total.flops += flops
    return sorted(totals.values(), key=lambda total: -total.total_ns)


def work_of(run: KernelRun) -> tuple[int, int]:
    """Bytes moved and floating-point operations of one run."""
    number = run.plan.plan.sizes_at(run.call.details["symbols"])
    step = run.step
    return number(step.read_bytes) + number(step.written_bytes), number(step.flops)


def transfer_totals(recording: Recording) -> list[TransferTotal]:
    """Time by kind of transfer, longest first."""
    totals: dict[str, TransferTotal] = {}
    for span in _of(recording, "transfer"):
        total = totals.setdefault(span.name, TransferTotal(span.name))
        total.calls += 1
        total.nbytes += span.details["nbytes"]
        total.total_ns += span.duration_ns
    return sorted(totals.values(), key=lambda total: -total.total_ns)


def compile_times(recording: Recording) -> dict[str, int]:
    """Nanoseconds by phase of compilation, without the phases inside it, over all threads."""
    by_thread: dict[int, list[Span]] = defaultdict(list)
    for span in _of(recording, "compile"):
        by_thread[span.thread].append(span)
    times = dict.fromkeys(PHASES, 0)
    for spans in by_thread.values():
        open_spans: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.begin_ns, -span.end_ns)):
            while open_spans and open_spans[-1].end_ns <= span.begin_ns:
                open_spans.pop()
            if open_spans:
                times[open_spans[-1].name] -= span.duration_ns
            times[span.name] += span.duration_ns
            open_spans.append(span)
    return times


def busy_ns(recording: Recording) -> float:
    """Time in which a kernel ran on some device."""
    busy, until = 0.0, float("-inf")
    for run in recording.kernels:
        end = run.begin_ns + run.duration_ns
        busy += max(0.0, end - max(run.begin_ns, until))
        until = max(until, end)
    return busy


def host_ns(recording: Recording) -> int:
    """Time the host spent submitting plans."""
    return sum(span.duration_ns for span in _of(recording, "plan"))


def _of(recording: Recording, category: str) -> Iterable[Span]:
    return (span for span in recording.spans if span.category == category)
