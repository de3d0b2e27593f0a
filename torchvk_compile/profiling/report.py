"""A profile as tables for people.

In: sums. Out: rich renderables, or their text. Forbidden: measuring, summing up.
"""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchvk_compile.profiling import summary
from torchvk_compile.profiling.recording import Recording
from torchvk_compile.profiling.summary import KernelTotal


def tables(recording: Recording, rows: int) -> Group:
    """Kernels (the `rows` longest), compilation, transfers, and one line about the whole."""
    parts: list[RenderableType] = [_kernels(recording, rows), Text(_headline(recording))]
    if any(summary.compile_times(recording).values()):
        parts.append(Text(_compilation(recording)))
    if summary.transfer_totals(recording):
        parts.append(Text(_transfers(recording)))
    if recording.untimed:
        parts.append(Text(f"No timestamps, so no kernel times: {', '.join(recording.untimed)}"))
    return Group(*parts)


def text(recording: Recording, rows: int, width: int) -> str:
    """`tables` as text of this width."""
    out = io.StringIO()
    Console(file=out, width=width).print(tables(recording, rows))
    return out.getvalue()


def _kernels(recording: Recording, rows: int) -> Table:
    totals = summary.kernel_totals(recording)
    everything = sum(total.total_ns for total in totals) or 1.0
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("calls", "total ms", "share", "mean µs", "GB/s", "GFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("operators", overflow="fold", ratio=3)
    table.add_column("source", overflow="fold", ratio=2)
    for total in totals[:rows]:
        table.add_row(
            str(total.calls),
            f"{total.total_ns / 1e6:.3f}",
            f"{total.total_ns / everything:.1%}",
            f"{total.total_ns / total.calls / 1e3:.1f}",
            _rate(total.nbytes, total.total_ns),
            _rate(total.flops, total.total_ns),
            _names(total),
            ", ".join(total.places) or "(eager)",
        )
    if len(totals) > rows:
        rest = totals[rows:]
        ns = sum(total.total_ns for total in rest)
        calls, share = sum(total.calls for total in rest), ns / everything
        table.add_row(
            str(calls), f"{ns / 1e6:.3f}", f"{share:.1%}", "", "", "", f"{len(rest)} more kernels"
        )
    return table


def _names(total: KernelTotal) -> str:
    names = ", ".join(total.operators) or total.kernel
    return f"{names} ({total.configuration})" if total.configuration else names


def _headline(recording: Recording) -> str:
    wall = recording.end_ns - recording.begin_ns
    busy = summary.busy_ns(recording)
    return (
        f"\n{wall / 1e6:.1f} ms, device busy {busy / 1e6:.1f} ms ({busy / max(wall, 1):.0%}), "
        f"{len(recording.kernels)} dispatches, host submitting {summary.host_ns(recording) / 1e6:.1f} ms"
    )


def _compilation(recording: Recording) -> str:
    times = summary.compile_times(recording)
    parts = ", ".join(f"{name} {ns / 1e6:.0f} ms" for name, ns in times.items() if ns)
    return f"compiling {sum(times.values()) / 1e6:.0f} ms: {parts}"


def _transfers(recording: Recording) -> str:
    parts = (
        f"{total.calls} × {total.kind} ({total.nbytes:,} bytes, {total.total_ns / 1e6:.2f} ms)"
        for total in summary.transfer_totals(recording)
    )
    return f"transfers: {', '.join(parts)}"


def _rate(amount: int, ns: float) -> str:
    return f"{amount / ns:.2f}" if amount and ns else ""
