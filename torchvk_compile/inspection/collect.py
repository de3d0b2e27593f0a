"""From plans and their timings to reports.

In: a `Recording`, and when the model was at work. Out: a `DeviceReport` for every device that was used.
Forbidden: running anything; formatting.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from torchvk_compile.cards import Roof
from torchvk_compile.errors import VulkanError
from torchvk_compile.inspection.disassembly import (
    machine_code,
    slang_of_kernels,
    spirv_of_kernels,
)
from torchvk_compile.inspection.model import (
    Buffer,
    DeviceReport,
    Graph,
    Kernel,
    SourceLine,
    Step,
)
from torchvk_compile.inspection.roofline import SPECIFICATIONS, measured_roof
from torchvk_compile.plan.executor import CompiledPlan
from torchvk_compile.plan.memory import plan_arena
from torchvk_compile.plan.origins import Frame, Origin, source_lines
from torchvk_compile.profiling.attribution import modules, operators, source_frames
from torchvk_compile.profiling.recording import Recording
from torchvk_compile.profiling.spans import Span

_CONTEXT = 3
"""Lines of the user's program shown before and after each line that a kernel computes."""


Window = tuple[int, int]
"""Begin and end of a stretch of host time (`time.perf_counter_ns`) in which the model was at work."""


@dataclasses.dataclass(frozen=True)
class _Key:
    """What makes two calls the same row of dispatches."""

    phase: str
    plan: CompiledPlan
    symbols: tuple[int, ...]


def device_reports(
    recording: Recording, windows: Sequence[Window], runs: int
) -> tuple[DeviceReport, ...]:
    """Reports by device, in the order the devices were used."""
    calls: Counter[_Key] = Counter()
    for span in recording.spans:
        key = _key(span, windows)
        if key is not None:
            calls[key] += 1
    times: dict[tuple[_Key, int], list[float]] = defaultdict(list)
    for run in recording.kernels:
        key = _key(run.call, windows)
        if key is not None:
            times[key, run.position].append(run.duration_ns)
    median = {where: statistics.median(found) for where, found in times.items()}
    by_device: dict[int, list[_Key]] = defaultdict(list)
    for key in calls:
        by_device[key.plan.device_index].append(key)
    return tuple(
        _device_report(index, keys, calls, median, runs) for index, keys in by_device.items()
    )


def _key(span: Span, windows: Sequence[Window]) -> _Key | None:
    if span.category != "plan":
        return None
    if not any(begin <= span.begin_ns <= end for begin, end in windows):
        return None
    phase = "backward" if span.details["backward"] else "forward"
    return _Key(phase, span.details["plan"], span.details["symbols"])


def _device_report(
    index: int,
    keys: Sequence[_Key],
    calls: Counter[_Key],
    times: dict[tuple[_Key, int], float],
    runs: int,
) -> DeviceReport:
    from torchvk_compile.device import runtime_device

    profile = runtime_device(index).profile
    roof = _roof(index, profile)
    return DeviceReport(
        device=profile.name,
        driver=f"{profile.driver_name} {profile.driver_info}".strip(),
        executed=not profile.null_hardware,
        roof=roof,
        graphs=tuple(_graph(key, -(-calls[key] // runs), times, roof) for key in keys),
    )


def _roof(index: int, profile: Any) -> Roof | None:
    if not profile.null_hardware:
        return measured_roof(index)
    known = [roof for name, roof in SPECIFICATIONS.items() if name in profile.name.lower()]
    return known[0] if known else None


def _graph(key: _Key, calls: int, times: dict[tuple[_Key, int], float], roof: Roof | None) -> Graph:
    plan = key.plan.plan
    number = plan.sizes_at(key.symbols)
    frames = list(dict.fromkeys(frame for o in plan.origins for frame in o.frames[:1]))
    positions = {frame: i for i, frame in enumerate(frames)}
    steps = []
    for position, (step, barrier) in enumerate(zip(plan.steps, key.plan.barriers(), strict=True)):
        origins = plan.origins_of(step)
        read, written = number(step.read_bytes), number(step.written_bytes)
        flops = number(step.flops)
        steps.append(
            Step(
                kernel=step.kernel,
                groups=tuple(number(size) for size in step.groups),
                operators=tuple(operators(origins)),
                modules=tuple(modules(origins)),
                nodes=tuple(_node(origin) for origin in origins),
                sources=tuple(positions[frame] for frame in source_frames(origins)),
                reads=step.reads,
                writes=step.writes,
                read_bytes=read,
                written_bytes=written,
                flops=flops,
                barrier=barrier,
                time_ns=times.get((key, position)),
                bound_ns=None if roof is None else 1e9 * roof.seconds(read + written, flops),
            )
        )
    buffers, arena_bytes = _buffers(key)
    return Graph(
        name=plan.name,
        phase=key.phase,
        calls=calls,
        symbols=dict(zip(plan.symbols, key.symbols, strict=True)),
        arena_bytes=arena_bytes,
        steps=tuple(steps),
        kernels=_kernels(key.plan),
        buffers=buffers,
        sources=tuple(_source(frame) for frame in frames),
    )


def _node(origin: Origin) -> dict[str, Any]:
    data = {name: value for name, value in vars(origin).items() if name != "frames"}
    return data | {"inputs": list(origin.inputs)}


def _kernels(compiled: CompiledPlan) -> tuple[Kernel, ...]:
    names = [kernel.name for kernel in compiled.plan.kernels]
    slang = slang_of_kernels(compiled.plan.slang, names)
    spirv = spirv_of_kernels(compiled.spirv(), names)
    try:
        reports: dict[str, Any] = dict(compiled.pipeline_statistics())
    except VulkanError:
        reports = {}
    kernels = []
    for kernel in compiled.plan.kernels:
        report = reports.get(kernel.name, {"statistics": {}, "representations": {}})
        kernels.append(
            Kernel(
                name=kernel.name,
                slang=slang[kernel.name],
                spirv=spirv[kernel.name],
                configuration=kernel.configuration,
                workgroup_size=kernel.workgroup_size,
                subgroup_size=kernel.subgroup_size,
                statistics=dict(report["statistics"]),
                isa=machine_code(report["representations"]),
            )
        )
    return tuple(kernels)


def _buffers(key: _Key) -> tuple[tuple[Buffer, ...], int]:
    """All buffers of a plan, and the size of its arena in bytes."""
    plan = key.plan.plan
    number = plan.sizes_at(key.symbols)
    last_step = max(len(plan.steps) - 1, 0)
    uses: dict[str, list[int]] = defaultdict(list)
    for position, step in enumerate(plan.steps):
        for name in (*step.reads, *step.writes):
            uses[name].append(position)
    found = [
        Buffer(name, "input", None, 0, max(uses[name], default=0), None) for name in plan.inputs
    ]
    sizes = [number(buffer.nbytes) for buffer in plan.arena]
    offsets, total = plan_arena(sizes, [(buffer.first, buffer.last) for buffer in plan.arena])
    for buffer, size, offset in zip(plan.arena, sizes, offsets, strict=True):
        found.append(Buffer(buffer.name, "arena", size, buffer.first, buffer.last, offset))
    for output, size in zip(plan.outputs, key.plan.output_bytes(key.symbols), strict=True):
        first = min(uses[output.name], default=0)
        found.append(Buffer(output.name, "output", size, first, last_step, None))
    return tuple(found), total


def _source(frame: Frame) -> SourceLine:
    lines, line = source_lines(frame.file), frame.current_line()
    around = range(max(1, line - _CONTEXT), min(len(lines), line + _CONTEXT) + 1)
    context = tuple((n, lines[n - 1].rstrip("\n")) for n in around)
    return SourceLine(frame.file, line, frame.function, frame.code, context)
