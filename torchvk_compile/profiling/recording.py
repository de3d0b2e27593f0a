"""What a profile collects while it is under way, on all devices and threads of the process.

In: spans, the runtime's timings, torch's annotations. Out: a `Recording`, all on the host's clock.
Forbidden: summing up or formatting; opening a device.
"""

from __future__ import annotations

import bisect
import dataclasses
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from torchvk_compile import torch_compat
from torchvk_compile.device import eager, physical
from torchvk_compile.errors import VulkanError
from torchvk_compile.profiling import spans
from torchvk_compile.profiling.spans import Span

if TYPE_CHECKING:
    from torchvk_compile.plan.executor import CompiledPlan
    from torchvk_compile.plan.graph_plan import Dispatch

Timing = tuple[str, str, float, float]
"""Plan, step, begin and duration in nanoseconds on the device's clock."""


@dataclasses.dataclass(frozen=True)
class KernelRun:
    """One dispatch as the device executed it.

    Attributes:
        plan: the plan it belongs to.
        position: of its step in the plan.
        begin_ns: on the host's clock (`time.perf_counter_ns`), as well as it can be told.
        duration_ns: between the timestamps before and after it; steps that run beside each other share theirs in
            proportion to what they take alone.
        call: the plan's call on the host.
    """

    plan: CompiledPlan
    position: int
    begin_ns: float
    duration_ns: float
    call: Span

    @property
    def step(self) -> Dispatch:
        """The plan's step."""
        return self.plan.plan.steps[self.position]


@dataclasses.dataclass(frozen=True)
class Annotation:
    """A ``torch.profiler.record_function`` block; times as `Span`'s, `thread` counts from 1."""

    name: str
    begin_ns: int
    end_ns: int
    thread: int


@dataclasses.dataclass
class Recording:
    """All that happened, each list in order of time.

    Attributes:
        begin_ns, end_ns: of the profile, on `time.perf_counter_ns`.
        untimed: names of devices that cannot take timestamps; their kernels are missing.
    """

    begin_ns: int
    end_ns: int = 0
    kernels: list[KernelRun] = dataclasses.field(default_factory=list)
    spans: list[Span] = dataclasses.field(default_factory=list)
    annotations: list[Annotation] = dataclasses.field(default_factory=list)
    untimed: set[str] = dataclasses.field(default_factory=set)


class Recorder:
    """A watcher that keeps everything. Several may be under way at once; each sees what happens meanwhile.

    Args:
        annotations: whether to record ``record_function`` blocks, too.
    """

    def __init__(self, *, annotations: bool = True) -> None:
        self.recording = Recording(0)
        self._timings: dict[int, list[Timing]] = defaultdict(list)
        self._dynamo = torch_compat.DynamoWatch(self._dynamo_begins, self._dynamo_ends)
        self._dynamo_begin = threading.local()
        self._annotations = torch_compat.AnnotationRecorder() if annotations else None

    def start(self) -> None:
        """Begin to record."""
        with _switch:
            _collect()
            for index in physical.opened_indices() - _timed:
                _start_timestamps(index)
            self.recording.begin_ns = time.perf_counter_ns()
            _active.append(self)
        if self._annotations is not None:
            self._annotations.start()
        self._dynamo.start()
        spans.watchers.append(self)

    def stop(self) -> Recording:
        """End, after waiting for the devices. Whatever a lost device still had to say is left out."""
        spans.watchers.remove(self)
        self._dynamo.stop()
        annotations = self._annotations.stop() if self._annotations is not None else []
        with _switch:
            _collect()
            self.recording.end_ns = time.perf_counter_ns()  # the devices are done
            _active.remove(self)
            if not _active:
                _stop_timestamps()
        unix_to_host = time.perf_counter_ns() - time.time_ns()
        self.recording.annotations = sorted(
            (
                Annotation(name, begin + unix_to_host, end + unix_to_host, thread)
                for name, begin, end, thread in annotations
            ),
            key=lambda annotation: (annotation.begin_ns, -annotation.end_ns),
        )
        self.recording.spans.sort(key=lambda span: (span.begin_ns, -span.end_ns))
        used = {
            span.details["plan"].device_index
            for span in self.recording.spans
            if span.category == "plan"
        }
        self.recording.untimed = {_without_timestamps[i] for i in used & _without_timestamps.keys()}
        for index, timings in self._timings.items():
            self.recording.kernels += _kernel_runs(timings, self._calls(index))
        self.recording.kernels.sort(key=lambda kernel: kernel.begin_ns)
        return self.recording

    # What is reported

    def plan_starts(self, plan: CompiledPlan) -> None:
        """Have the device take timestamps from the first plan on."""
        if plan.device_index in _timed or plan.device_index in _without_timestamps:
            return
        with _switch:
            if _active and plan.device_index not in _timed:
                _start_timestamps(plan.device_index)

    def finished(self, span: Span) -> None:
        """Keep a span."""
        self.recording.spans.append(span)

    def take(self, index: int, timings: list[Timing]) -> None:
        """Keep timings of a device."""
        self._timings[index] += timings

    def _calls(self, index: int) -> dict[str, list[Span]]:
        """The calls of every plan on a device, by the plan's name in the runtime."""
        found: dict[str, list[Span]] = defaultdict(list)
        for span in self.recording.spans:
            if (
                span.category == "plan"
                and span.details["plan"].device_index == index
                and _dispatches_anything(span)
            ):
                found[span.details["plan"].runtime_name].append(span)
        return found

    def _dynamo_begins(self) -> None:
        self._dynamo_begin.ns = time.perf_counter_ns()

    def _dynamo_ends(self) -> None:
        begin = getattr(self._dynamo_begin, "ns", None)
        if begin is not None:
            self._dynamo_begin.ns = None
            thread = threading.get_native_id()
            self.finished(Span("compile", "Dynamo", begin, time.perf_counter_ns(), thread))


_switch = threading.Lock()
_active: list[Recorder] = []
_timed: set[int] = set()
_without_timestamps: dict[int, str] = {}


def _start_timestamps(index: int) -> None:
    device = physical.runtime_device(index)
    try:
        device.set_profiling(True)
        _timed.add(index)
    except VulkanError:
        _without_timestamps[index] = device.profile.name


def _stop_timestamps() -> None:
    while _timed:
        try:
            physical.runtime_device(_timed.pop()).set_profiling(False)
        except VulkanError:
            continue  # lost: nothing runs there any more


def _collect() -> None:
    """Hand what the devices and the runtime have kept to every profile under way."""
    for (plan, symbols), begin, end, thread, backward in eager.take_watched_calls():
        details = spans.plan_details(plan, symbols, backward)
        for recorder in _active:
            recorder.finished(Span("plan", plan.plan.name, begin, end, thread, details))
    for index in _timed:
        try:
            timings = physical.runtime_device(index).take_timings()
        except VulkanError:
            continue
        for recorder in _active:
            recorder.take(index, timings)


def _kernel_runs(timings: list[Timing], calls: dict[str, list[Span]]) -> list[KernelRun]:
    """Timings as runs of steps, each with the call it belongs to: the n-th run of a plan with its n-th call."""
    groups: dict[str, list[list[tuple[int, float, float]]]] = defaultdict(list)
    for name, label, begin, duration in timings:
        position = int(label.partition(" ")[0])
        runs = groups[name]
        if not runs or position <= runs[-1][-1][0]:
            runs.append([])
        runs[-1].append((position, begin, duration))
    matched = [
        (call, run) for name, runs in groups.items() for call, run in zip(calls.get(name, []), runs)
    ]
    shift = _clock_shift([(call.begin_ns, run[0][1]) for call, run in matched])
    return [
        KernelRun(call.details["plan"], position, max(begin + shift, call.begin_ns), duration, call)
        for call, run in matched
        for position, begin, duration in run
    ]


def _dispatches_anything(call: Span) -> bool:
    """False for a call whose tensors are empty: it has no timings."""
    plan = call.details["plan"].plan
    number = plan.sizes_at(call.details["symbols"])
    return any(all(number(size) for size in step.groups) for step in plan.steps)


def _clock_shift(pairs: list[tuple[int, float]]) -> float:
    """What to add to the device's clock to get the host's.

    No plan starts before its call begins, and one that finds the device idle starts soon after: the smallest
    shift that respects this is taken. Pairs are (begin of the call, begin on the device).
    """
    return max((host - device for host, device in pairs), default=0.0)


def innermost(annotations: list[Annotation], moment: int) -> str:
    """Name of the shortest annotation around a moment; empty if there is none."""
    end = bisect.bisect_right([a.begin_ns for a in annotations], moment)
    around: list[Any] = [a for a in annotations[:end] if a.end_ns >= moment]
    return min(around, key=lambda a: a.end_ns - a.begin_ns).name if around else ""
