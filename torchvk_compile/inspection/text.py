"""An inspection as tables for the terminal.

In: an `Inspection`. Out: text. Forbidden: measuring, summing up more than a column.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from torchvk_compile.inspection.model import DeviceReport, Graph, Inspection, Kernel, Step


def text(inspection: Inspection, width: int) -> str:
    """All reports, for a terminal of this width."""
    out = io.StringIO()
    console = Console(file=out, width=width)
    for report in inspection.reports:
        for part in _report(inspection.subject, report):
            console.print(part)
    return out.getvalue()


def _report(subject: str, report: DeviceReport) -> Iterator[RenderableType]:
    how = "" if report.executed else ", compiled and not run"
    yield Text(f"{subject} on {report.device} ({report.driver}){how}", style="bold")
    if report.roof is not None:
        roof = report.roof
        yield Text(
            f"roofline ({roof.source}): {roof.bytes_per_second / 1e9:.1f} GB/s, "
            f"{roof.flops_per_second / 1e9:.1f} GFLOP/s"
        )
    for graph in report.graphs:
        yield Text()
        yield Text(_headline(graph))
        yield _table(graph, report.executed)
    yield Text()


def _headline(graph: Graph) -> str:
    times = [step.time_ns for step in graph.steps if step.time_ns is not None]
    parts = [
        f"{graph.phase}: {graph.name}",
        _counted(len(graph.steps), "dispatch", "dispatches"),
        _counted(sum(step.barrier for step in graph.steps), "barrier", "barriers"),
        f"arena {graph.arena_bytes:,} bytes",
    ]
    if times:
        parts.append(f"{sum(times) / 1e6:.3f} ms")
    if graph.calls > 1:
        parts.append(f"submitted {graph.calls} times a call")
    if graph.symbols:
        parts.append(", ".join(f"{name} = {value}" for name, value in graph.symbols.items()))
    return ", ".join(parts)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _table(graph: Graph, executed: bool) -> Table:
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    registers = any(kernel.statistics.get("VGPRs") for kernel in graph.kernels)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    times = ["µs", "roofline"] if executed else ["least µs"]
    numbers = ["#", *times, "MB", "MFLOP", "groups"]
    for name in numbers + (["VGPRs", "LDS", "waves", "spills"] if registers else []):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("operators", overflow="fold", ratio=3)
    table.add_column("source", overflow="fold", ratio=2)
    for position, step in enumerate(graph.steps):
        cells = [str(position), *(_times(step) if executed else [_microseconds(step.bound_ns)])]
        cells += _work(step, kernels[step.kernel])
        if registers:
            cells += _registers(kernels[step.kernel])
        sources = [graph.sources[i] for i in step.sources]
        places = dict.fromkeys(f"{Path(s.file).name}:{s.line}" for s in sources)
        table.add_row(*cells, _names(step, kernels[step.kernel]), ", ".join(places))
    return table


def _names(step: Step, kernel: Kernel) -> str:
    names = ", ".join(name.removeprefix("aten.") for name in step.operators) or step.kernel
    return f"{names} ({kernel.configuration})" if kernel.configuration else names


def _times(step: Step) -> list[str]:
    share = step.share_of_roofline
    return [_microseconds(step.time_ns), "" if share is None else f"{share:.0%}"]


def _microseconds(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / 1e3:.1f}"


def _work(step: Step, kernel: Kernel) -> list[str]:
    groups = "×".join(str(n) for n in step.groups if n != 1) or "1"
    return [
        f"{(step.read_bytes + step.written_bytes) / 1e6:.3f}",
        f"{step.flops / 1e6:.3f}",
        f"{groups}·{kernel.workgroup_size}",
    ]


def _registers(kernel: Kernel) -> list[str]:
    found = kernel.statistics
    spills = found.get("Spilled VGPRs", 0) + found.get("Spilled SGPRs", 0)
    names = ("VGPRs", "LDS size", "Subgroups per SIMD")
    return [*(str(found.get(name, "")) for name in names), str(spills)]
