"""The data of an inspection, the same for text, JSON and the page.

In: nothing. Out: dataclasses of plain values, and their ways out. Forbidden: computing more than a ratio.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from torchvk_compile import output
from torchvk_compile.cards import Roof

FORMAT = 1
"""Version of the JSON form."""


@dataclasses.dataclass(frozen=True)
class SourceLine:
    """A line of the user's program, with the lines around it as (number, text)."""

    file: str
    line: int
    function: str
    code: str
    context: tuple[tuple[int, str], ...]


@dataclasses.dataclass(frozen=True)
class Step:
    """One dispatch.

    Attributes:
        kernel: name of its `Kernel`.
        groups: workgroups in x, y and z.
        operators: ATen operators as the program called them, views left out.
        modules: paths of the modules that called them.
        nodes: FX nodes: name, op, composite, module, value, inputs.
        sources: positions in `Graph.sources`.
        reads, writes: buffers.
        read_bytes, written_bytes, flops: what it must move and compute.
        barrier: whether it waits for the steps before it.
        time_ns: median of the measured times; None where nothing was measured.
        bound_ns: shortest time under the device's roof; None where that is unknown.
    """

    kernel: str
    groups: tuple[int, ...]
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    nodes: tuple[dict[str, Any], ...]
    sources: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    flops: int
    barrier: bool
    time_ns: float | None
    bound_ns: float | None

    @property
    def share_of_roofline(self) -> float | None:
        """Shortest possible time over measured time; above 1 where a cache held the data."""
        if not self.time_ns or self.bound_ns is None:
            return None
        return self.bound_ns / self.time_ns


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One entry point.

    Attributes:
        slang: its part of the module.
        spirv: disassembly, or why there is none.
        configuration: the tile it was written with; empty for loop kernels.
        workgroup_size: invocations of a workgroup.
        subgroup_size: the size it demands, 0 if any will do.
        statistics: what the driver's compiler reports, by its own names; empty where it does not.
        isa: the driver's machine code as text; empty where it does not show any.
    """

    name: str
    slang: str
    spirv: str
    configuration: str
    workgroup_size: int
    subgroup_size: int
    statistics: dict[str, int | float | bool]
    isa: str


@dataclasses.dataclass(frozen=True)
class Buffer:
    """Memory of a graph. `kind` is "input", "output" or "arena"; the latter lives from step `first` to `last`.

    Attributes:
        nbytes: None for inputs, whose size the plan does not know.
        offset: in the arena, in bytes; None outside it.
    """

    name: str
    kind: str
    nbytes: int | None
    first: int
    last: int
    offset: int | None


@dataclasses.dataclass(frozen=True)
class Graph:
    """One plan: a row of dispatches that are submitted at once.

    Attributes:
        phase: "backward" if autograd called it, else "forward".
        calls: submissions per call of the model.
        symbols: values of the dynamic sizes it was inspected with.
        arena_bytes: of the allocation that holds all intermediates.
        sources: lines of the user's program.
    """

    name: str
    phase: str
    calls: int
    symbols: dict[str, int]
    arena_bytes: int
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
    sources: tuple[SourceLine, ...]


@dataclasses.dataclass(frozen=True)
class DeviceReport:
    """What a model became for one device.

    Attributes:
        device: the driver's name for it.
        driver: name and version.
        executed: False where kernels were compiled only.
    """

    device: str
    driver: str
    executed: bool
    roof: Roof | None
    graphs: tuple[Graph, ...]


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The reports of one model, that of the device it ran on first.

    Attributes:
        subject: what was inspected, for headings.
        versions: of TorchVK and torch.
    """

    subject: str
    versions: dict[str, str]
    reports: tuple[DeviceReport, ...]

    def text(self, width: int = 120) -> str:
        """The kernels of every graph as tables."""
        from torchvk_compile.inspection.text import text

        return text(self, width)

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` to a file, whole or not at all. Raises UsageError if that cannot be."""
        output.check_writable_file(Path(path))
        output.write_json(self.to_dict(), Path(path))

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write one page that needs nothing else, whole or not at all. Raises UsageError if that cannot be."""
        from torchvk_compile.inspection.page import page

        output.check_writable_file(Path(path))
        output.write_text(page(self), Path(path))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data, for JSON; times in nanoseconds, sizes in bytes."""
        data = dataclasses.asdict(self)
        for report, plain in zip(self.reports, data["reports"], strict=True):
            for graph, plain_graph in zip(report.graphs, plain["graphs"], strict=True):
                for step, plain_step in zip(graph.steps, plain_graph["steps"], strict=True):
                    plain_step["share_of_roofline"] = step.share_of_roofline
        return {"format": FORMAT, **data}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Inspection:
        """What `to_dict` was called on.

        Raises:
            ValueError: for data of another version.
        """
        if data.get("format") != FORMAT:
            raise ValueError("the inspection was written by another version of TorchVK")
        reports = tuple(_device_report(report) for report in data["reports"])
        return Inspection(data["subject"], data["versions"], reports)


def _device_report(data: dict[str, Any]) -> DeviceReport:
    roof = None if data["roof"] is None else Roof(**data["roof"])
    graphs = tuple(_graph(graph) for graph in data["graphs"])
    return DeviceReport(**data | {"roof": roof, "graphs": graphs})


def _graph(data: dict[str, Any]) -> Graph:
    return Graph(
        **data
        | {
            "steps": tuple(_step(step) for step in data["steps"]),
            "kernels": tuple(Kernel(**kernel) for kernel in data["kernels"]),
            "buffers": tuple(Buffer(**buffer) for buffer in data["buffers"]),
            "sources": tuple(_source(source) for source in data["sources"]),
        }
    )


def _step(data: dict[str, Any]) -> Step:
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data.items()
        if name != "share_of_roofline"
    }
    return Step(**plain)


def _source(data: dict[str, Any]) -> SourceLine:
    return SourceLine(**data | {"context": tuple((n, text) for n, text in data["context"])})
