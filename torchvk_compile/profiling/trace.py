"""A recording as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

In: a `Recording`. Out: plain data in the Trace Event Format: complete events ("X"), flows from calls to kernels.
Forbidden: writing files; summing up.
"""

from __future__ import annotations

from typing import Any

from torchvk_compile.profiling.attribution import modules, operators, places, source_frames
from torchvk_compile.profiling.recording import KernelRun, Recording, innermost
from torchvk_compile.profiling.summary import work_of

_HOST, _ANNOTATIONS, _FIRST_DEVICE = 1, 2, 10
"""Numbers of the trace's "processes"."""

Event = dict[str, Any]


def chrome_trace(recording: Recording, device_names: dict[int, str]) -> dict[str, Any]:
    """The trace as plain data; times in microseconds from the profile's begin.

    Args:
        device_names: of the devices in the recording, by index.
    """
    origin = recording.begin_ns
    threads = {
        thread: number
        for number, thread in enumerate(dict.fromkeys(s.thread for s in recording.spans))
    }
    events = [
        _complete(
            _HOST,
            threads[span.thread],
            f"{span.category} {span.name}" if span.category != "plan" else f"submit {span.name}",
            span.category,
            span.begin_ns - origin,
            span.duration_ns,
            {k: v for k, v in span.details.items() if k == "nbytes"},
        )
        for span in recording.spans
    ]
    events += [
        _complete(
            _ANNOTATIONS,
            annotation.thread,
            annotation.name,
            "annotation",
            annotation.begin_ns - origin,
            annotation.end_ns - annotation.begin_ns,
            {},
        )
        for annotation in recording.annotations
    ]
    arrived: set[int] = set()
    for number, run in enumerate(recording.kernels):
        events.append(_kernel(run, recording, origin))
        if id(run.call) not in arrived:
            arrived.add(id(run.call))
            events += _flow(number, run, threads[run.call.thread], origin)
    events.sort(key=lambda event: event["ts"])
    names = _names(recording, threads, device_names)
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def _kernel(run: KernelRun, recording: Recording, origin: int) -> Event:
    origins = run.plan.plan.origins_of(run.step)
    nbytes, flops = work_of(run)
    arguments = {
        "graph": run.plan.plan.name,
        "operators": operators(origins),
        "modules": modules(origins),
        "source": [
            f"{place}  {frame.code}"
            for frame in source_frames(origins)
            for place in places([frame])
        ],
        "nbytes": nbytes,
        "flops": flops,
        "annotation": innermost(recording.annotations, run.call.begin_ns),
    }
    return _complete(
        _FIRST_DEVICE + run.plan.device_index,
        0,
        run.step.kernel,
        "kernel",
        run.begin_ns - origin,
        run.duration_ns,
        arguments,
    )


def _flow(number: int, run: KernelRun, thread: int, origin: int) -> list[Event]:
    """An arrow from a call to the first kernel it starts."""
    shared = {"name": "submission", "cat": "submission", "id": number}
    device = _FIRST_DEVICE + run.plan.device_index
    begin, arrival = (run.call.begin_ns - origin) / 1e3, (run.begin_ns - origin) / 1e3
    return [
        {**shared, "ph": "s", "pid": _HOST, "tid": thread, "ts": begin},
        {**shared, "ph": "f", "bp": "e", "pid": device, "tid": 0, "ts": arrival},
    ]


def _complete(
    process: int,
    thread: int,
    name: str,
    category: str,
    begin_ns: float,
    duration_ns: float,
    arguments: dict[str, Any],
) -> Event:
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "cat": category,
        "ts": begin_ns / 1e3,
        "dur": duration_ns / 1e3,
        "args": arguments,
    }


def _names(
    recording: Recording, threads: dict[int, int], device_names: dict[int, str]
) -> list[Event]:
    def name(kind: str, process: int, thread: int, text: str) -> Event:
        arguments = {"name": text}
        return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": arguments, "ts": 0}

    found = [name("process_name", _HOST, 0, "host")]
    found += [
        name("thread_name", _HOST, number, f"thread {native}") for native, number in threads.items()
    ]
    if recording.annotations:
        found.append(name("process_name", _ANNOTATIONS, 0, "record_function"))
    for index, text in device_names.items():
        found.append(name("process_name", _FIRST_DEVICE + index, 0, f"vk:{index} {text}"))
        found.append(name("thread_name", _FIRST_DEVICE + index, 0, "queue"))
    return found
