"""The table of figures, and where TorchVK loses.

In: measured results. Out: text, JSON. Forbidden: measuring.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from figures.case import Case
from figures.clock import Times
from figures.sides import OURS


@dataclass
class Result:
    """What came of one case.

    Attributes:
        case: what was run.
        times: by side.
        device_seconds: time of the kernels alone, by side, where the device tells.
        errors: max |result - float64| / max |float64|, by side.
        failures: what went wrong, by side.
    """

    case: Case
    times: dict[str, Times] = field(default_factory=dict)
    device_seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def best_peer(self) -> str | None:
        peers = [name for name in self.times if name != OURS]
        return min(peers, key=lambda name: self.times[name].median, default=None)

    @property
    def ratio(self) -> float | None:
        """TorchVK's time by the best peer's: above 1 TorchVK loses."""
        peer = self.best_peer
        if peer is None or OURS not in self.times:
            return None
        return self.times[OURS].median / self.times[peer].median

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.case.group,
            "name": self.case.name,
            "flops": self.case.work.flops,
            "bytes": self.case.work.nbytes,
            "seconds": {
                name: {
                    "median": times.median,
                    "quartiles": times.quartiles,
                    "samples": times.samples,
                }
                for name, times in self.times.items()
            },
            "device_seconds": self.device_seconds,
            "errors": self.errors,
            "tolerance": self.case.tolerance,
            "failures": self.failures,
            "ratio": self.ratio,
        }


def write(path: Path, machine: dict[str, str], results: list[Result]) -> None:
    """Write all results as JSON; called after every case, so that an interrupted run keeps what it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "results": [result.as_json() for result in results]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def show(machine: dict[str, str], results: list[Result]) -> None:
    """Print the table, then the losses and the failures."""
    console = Console(width=190)
    console.print(_table(machine, results))
    losses = sorted(
        (result for result in results if (result.ratio or 0.0) > 1.0),
        key=lambda result: -(result.ratio or 0.0),
    )
    console.print(f"TorchVK loses in {len(losses)} of {len(results)} cases:")
    for result in losses:
        console.print(f"  {result.ratio:6.2f}x the time of {result.best_peer}: {result.case.name}")
    for result in results:
        for side, failure in result.failures.items():
            console.print(f"[red]failed[/red] {side}: {result.case.name}: {failure}", markup=True)


def _table(machine: dict[str, str], results: list[Result]) -> Table:
    title = ", ".join(machine.values())
    table = Table(title=title)
    for heading in ("case", OURS, "its kernels", "rate", "best peer", "its time", "TorchVK / peer"):
        table.add_column(heading, justify="left" if heading in ("case", "best peer") else "right")
    table.add_column("error", justify="right")
    group = None
    for result in results:
        if group not in (None, result.case.group):
            table.add_section()
        group = result.case.group
        ours, peer = result.times.get(OURS), result.best_peer
        kernels = result.device_seconds.get(OURS)
        table.add_row(
            result.case.name,
            _with_spread(ours),
            "" if kernels is None else _duration(kernels),
            _rate(result, ours),
            peer or "",
            _with_spread(result.times[peer]) if peer else "",
            "" if result.ratio is None else f"{result.ratio:.2f}",
            f"{result.errors[OURS]:.1e}" if OURS in result.errors else "",
        )
    return table


def _with_spread(times: Times | None) -> str:
    if times is None:
        return "failed"
    low, high = times.quartiles
    return f"{_duration(times.median)} ({_duration(low)} .. {_duration(high)})"


def _duration(seconds: float) -> str:
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.3g} ms"
    return f"{1e6 * seconds:.3g} µs"


def _rate(result: Result, times: Times | None) -> str:
    work = result.case.work
    if times is None:
        return ""
    if work.flops:
        return f"{1e-9 * work.flops / times.median:,.0f} GFLOP/s"
    if work.nbytes:
        return f"{1e-9 * work.nbytes / times.median:,.1f} GB/s"
    return f"{1 / times.median:,.0f} /s"
