"""The data that crosses from code generation to the runtime: kernels, buffers and steps of one graph.

In: names, sizes and expressions as plain Python data. Out: frozen, JSON-serialisable dataclasses.
Forbidden: torch tensors, sympy objects, runtime handles.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from torchvk_compile.plan.origins import Origin, origins_from_data, origins_to_data

Size = int | str
"""A whole number, or a Python expression over the plan's symbols (such as ``"4*s0"``)."""

ArgumentKind = Literal["pointer", "i32", "u32", "i64", "f32", "f64"]

_ARGUMENT_BYTES: dict[str, int] = {"pointer": 8, "i64": 8, "f64": 8, "i32": 4, "u32": 4, "f32": 4}

PLAN_VERSION = 4


@dataclasses.dataclass(frozen=True)
class KernelArgument:
    """One member of a kernel's argument struct.

    Attributes:
        name: identifier in the Slang source.
        kind: how the runtime writes it into the argument table.
        slang_type: type of the member in Slang, e.g. ``float*``.
        starts_struct: it is the first member of a struct in an array, which std140 aligns to 16 bytes.
    """

    name: str
    kind: ArgumentKind
    slang_type: str
    starts_struct: bool = False

    @property
    def nbytes(self) -> int:
        """Size in the argument table, in bytes; also its alignment (std140 scalars)."""
        return _ARGUMENT_BYTES[self.kind]


@dataclasses.dataclass(frozen=True)
class KernelSpec:
    """One entry point of the graph's Slang module.

    Attributes:
        name: entry point.
        workgroup_size: invocations per workgroup (one-dimensional).
        subgroup_size: required subgroup size, 0 where the kernel works with any.
        arguments: members of the argument struct in its order, those of nested structs as well.
        origin: FX nodes this kernel computes, for people.
        configuration: the tile a template was written with, for people; empty for loop kernels.
    """

    name: str
    workgroup_size: int
    subgroup_size: int
    arguments: tuple[KernelArgument, ...]
    origin: str = ""
    configuration: str = ""

    def argument_offsets(self) -> tuple[int, ...]:
        """Byte offset of every argument in the table slice, following std140 for scalars and arrays of structs."""
        offsets, at = [], 0
        for argument in self.arguments:
            alignment = 16 if argument.starts_struct else argument.nbytes
            at = -(-at // alignment) * alignment
            offsets.append(at)
            at += argument.nbytes
        return tuple(offsets)

    @property
    def argument_bytes(self) -> int:
        """Size of the argument struct in bytes, rounded up to 16 as std140 blocks are."""
        offsets = self.argument_offsets()
        end = offsets[-1] + self.arguments[-1].nbytes if offsets else 0
        return -(-max(end, 1) // 16) * 16


@dataclasses.dataclass(frozen=True)
class Operand:
    """What is bound to a kernel argument in one dispatch: a buffer, a size or a host scalar.

    Attributes:
        buffer: name of a buffer; ``"errors"`` names the device's error buffer.
        offset: where in the buffer the kernel starts, in bytes.
        value: a size expression, used when `buffer` and `scalar` are None.
        scalar: name of a host scalar (a zero-dimensional CPU tensor), read when the plan runs.
        assertion: message a kernel reports, by the code the device gives it, when its condition is violated.
    """

    buffer: str | None = None
    offset: Size = 0
    value: Size | None = None
    scalar: str | None = None
    assertion: str | None = None


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """One kernel launch.

    Attributes:
        kernel: name of a `KernelSpec` of the plan.
        groups: workgroups in x, y and z.
        operands: one for every argument of the kernel, in its order.
        reads, writes: names of the buffers touched.
        origins: operators it computes, as positions in `GraphPlan.origins`.
        read_bytes, written_bytes: of the elements it touches, each counted once.
        flops: floating-point operations; see `codegen.costs` for what counts.
    """

    kernel: str
    groups: tuple[Size, Size, Size]
    operands: tuple[Operand, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    origins: tuple[int, ...] = ()
    read_bytes: Size = 0
    written_bytes: Size = 0
    flops: Size = 0


@dataclasses.dataclass(frozen=True)
class ArenaBuffer:
    """An intermediate that lives in the plan's arena from step `first` to step `last`, both included."""

    name: str
    nbytes: Size
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class OutputBuffer:
    """A buffer that outlives the plan; it becomes a torch tensor.

    Attributes:
        shape, strides: in elements.
        dtype: torch dtype name without the ``torch.`` prefix.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclasses.dataclass(frozen=True)
class HostScalar:
    """A zero-dimensional CPU tensor (or a seed) whose value is written into the argument table."""

    name: str
    dtype: str


@dataclasses.dataclass(frozen=True)
class GraphPlan:
    """Everything that is needed to run a straight line of dispatches as one submission.

    Attributes:
        name: of the graph, for labels and files.
        slang: source of the module with all kernels.
        inputs: buffers given by the caller, as tensors.
        symbols: names of the whole numbers given by the caller; expressions are over these.
        scalars: host scalars given by the caller.
        arena, outputs: buffers the plan allocates.
        kernels: entry points of `slang`.
        steps: dispatches in order.
        origins: operators of the FX graph that the steps compute, in the order of the graph.
        fingerprint: of the device profile the code was generated for.
        without: mechanisms switched off for a measurement, see `config.MECHANISMS`.
    """

    name: str
    slang: str
    inputs: tuple[str, ...]
    symbols: tuple[str, ...]
    scalars: tuple[HostScalar, ...]
    arena: tuple[ArenaBuffer, ...]
    outputs: tuple[OutputBuffer, ...]
    kernels: tuple[KernelSpec, ...]
    steps: tuple[Dispatch, ...]
    origins: tuple[Origin, ...] = ()
    fingerprint: str = ""
    without: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The plan without its Slang source, one element per line for people and diffs."""
        data = dataclasses.asdict(dataclasses.replace(self, origins=()))
        del data["slang"]
        data |= origins_to_data(self.origins)
        data["version"] = PLAN_VERSION
        return _dump(data)

    @staticmethod
    def from_json(text: str, slang: str) -> GraphPlan:
        """Rebuild a plan from `to_json` and the Slang source.

        Raises:
            ValueError: when the text was written by another version of the format.
        """
        data = json.loads(text)
        if data.pop("version", None) != PLAN_VERSION:
            raise ValueError("plan was written by another version of TorchVK")
        return GraphPlan(
            name=data["name"],
            slang=slang,
            inputs=tuple(data["inputs"]),
            symbols=tuple(data["symbols"]),
            scalars=tuple(HostScalar(**s) for s in data["scalars"]),
            arena=tuple(ArenaBuffer(**a) for a in data["arena"]),
            outputs=tuple(_output(o) for o in data["outputs"]),
            kernels=tuple(_kernel(k) for k in data["kernels"]),
            steps=tuple(_dispatch(s) for s in data["steps"]),
            origins=origins_from_data(data),
            fingerprint=data["fingerprint"],
            without=tuple(data["without"]),
        )

    def origins_of(self, step: Dispatch) -> tuple[Origin, ...]:
        """The operators that a step computes, in the order of the graph."""
        return tuple(self.origins[i] for i in step.origins)

    def sizes_at(self, values: Sequence[int]) -> Callable[[Size], int]:
        """From a size of this plan to its number, where `symbols` have these values."""

        def number(size: Size) -> int:
            return (
                size if isinstance(size, int) else int(evaluator(self.symbols, (size,))(*values)[0])
            )

        return number

    def expressions(self) -> tuple[str, ...]:
        """Every distinct size expression of the plan, in order of first use."""
        found: dict[str, None] = {}
        for size in self._sizes():
            if isinstance(size, str):
                found.setdefault(size)
        return tuple(found)

    def _sizes(self) -> Iterable[Size]:
        for buffer in self.arena:
            yield buffer.nbytes
        for output in self.outputs:
            yield from output.shape
            yield from output.strides
        for step in self.steps:
            yield from step.groups
            for operand in step.operands:
                yield operand.offset
                if operand.value is not None:
                    yield operand.value


def evaluator(symbols: Sequence[str], expressions: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """A function from values of the symbols to values of the expressions.

    Args:
        expressions: Python as Inductor prints it, with ``math``, ``torch`` (``sym_float``) and built-in functions.
    """
    source = f"lambda {', '.join(symbols)}: ({''.join(text + ', ' for text in expressions)})"
    return eval(source, {"math": math, "torch": torch})


def _output(data: dict[str, Any]) -> OutputBuffer:
    return OutputBuffer(data["name"], data["dtype"], tuple(data["shape"]), tuple(data["strides"]))


def _kernel(data: dict[str, Any]) -> KernelSpec:
    arguments = tuple(KernelArgument(**a) for a in data.pop("arguments"))
    return KernelSpec(arguments=arguments, **data)


def _dispatch(data: dict[str, Any]) -> Dispatch:
    operands = tuple(Operand(**operand) for operand in data.pop("operands"))
    tuples: dict[str, Any] = {
        name: tuple(data.pop(name)) for name in ("groups", "reads", "writes", "origins")
    }
    return Dispatch(operands=operands, **tuples, **data)


def _dump(data: dict[str, Any]) -> str:
    lines = []
    for key, value in data.items():
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
            items = ",\n  ".join(json.dumps(item) for item in value)
            lines.append(f"{json.dumps(key)}: [\n  {items}]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{" + ",\n".join(lines) + "}"
