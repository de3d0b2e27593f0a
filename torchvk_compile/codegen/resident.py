"""Rows that stay in registers: what one loop along a row computes is kept for the loops after it.

In: the segments of a reduction kernel whose rows fit, as lines of Slang. Out: one body in which every loop is unrolled
and values that a later loop needs sit in arrays. Forbidden: knowing what the lines compute.

The loops over a row all have the same fixed number of rounds, so that a compiler turns the arrays into registers and a
row is read from memory once. Values that cost nothing (literals, functions of the position) are written again instead.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

import sympy
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.dependencies import MemoryDep
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.virtualized import V

from torchvk_compile.codegen.declarations import Declaration, names_in, separate

_READ = re.compile(r"\S+ (\w+) = .*;")
_UNTYPED = ("let", "var")

REGISTERS = 32
"""Registers of an invocation for the elements of a row: RDNA1 keeps its full occupancy up to 48 in all."""

_FEWEST = 4
"""With fewer elements for each invocation, a loop over the row that reads it again is as good."""

_LONGEST_BODY = 2048
"""Operations of all unrolled rounds together; longer code than that outgrows instruction caches."""


def elements_held(features: SIMDKernelFeatures, sums: int = 0) -> int:
    """How many elements of its row an invocation may keep in registers, 0 if there are too few to be worth it.

    Where no reduction reads the row, all that its loops have in common is computed from positions; and online softmax
    needs a row only once. Nothing is kept then.

    Args:
        features: of a reduction kernel.
        sums: over rows, that are to be kept for every element, too.
    """
    nodes = features.scheduler_nodes()
    made_here = {dep.name for node in nodes for dep in node.read_writes.writes}
    elements = features.numel * features.reduction_numel
    read = {node: whole_tensors(node, elements) for node in nodes}
    if not any(names for node, names in read.items() if node.is_reduction()):
        return 0
    if any(node.node.get_reduction_type() == "online_softmax_reduce" for node in nodes):
        return 0
    tensors = set().union(*read.values()) - made_here
    operations = sum(node._body.op_counts.total() for node in nodes)
    kept = max(len(tensors), 1) + sums
    most = min(REGISTERS // kept, _LONGEST_BODY // operations)
    return 0 if most < _FEWEST else 1 << (most.bit_length() - 1)


def whole_tensors(node: BaseSchedulerNode, elements: sympy.Expr | int) -> set[str]:
    """Buffers of which the node reads an element for each of the `elements` of a kernel."""
    whole = sympy.sympify(elements)
    return {
        dep.name
        for dep in node.read_writes.reads
        if isinstance(dep, MemoryDep)
        and V.graph.sizevars.statically_known_equals(dep.get_numel(), whole)
    }


@dataclasses.dataclass(frozen=True)
class Segment:
    """A loop along the row, or (`loop` false) code about whole rows.

    Attributes:
        before, after: code around the loop.
        positions: declarations of the reduction's indices, which depend on the lane.
        reads, body, writes: of a round: before its lanes, for each lane, behind them.
    """

    loop: bool
    before: IndentedBuffer
    positions: IndentedBuffer
    reads: IndentedBuffer
    body: IndentedBuffer
    writes: IndentedBuffer
    after: IndentedBuffer


@dataclasses.dataclass(frozen=True)
class Rounds:
    """The loop that all segments have in common.

    Attributes:
        variable: the element of the lane.
        base: variable for the element of the first lane.
        index_type: of both.
        length: elements of the row.
        columns: invocations that share the row.
        lanes: consecutive elements of an invocation.
        count: rounds.
    """

    variable: str
    base: str
    index_type: str
    length: int
    columns: int
    lanes: int
    count: int

    @property
    def stride(self) -> int:
        """Elements that the invocations of a row handle in a round."""
        return self.columns * self.lanes


def assemble(segments: Sequence[Segment], rounds: Rounds) -> IndentedBuffer:
    """The kernel's body. Buffers are read now, when it is known which stores have become superfluous."""
    parsed = [_Lines(segment) for segment in segments]
    definitions: dict[str, str] = {}
    for lines in parsed:
        definitions |= lines.positions
    differing = {*definitions, rounds.base, rounds.variable, "lane", "round"}
    for lines in parsed:
        if lines.loop:
            lines.declare(differing)
    keep = _Kept(parsed, rounds)
    out = IndentedBuffer()
    keep.declare(out)
    for lines in parsed:
        out.writelines(lines.before)
        if lines.loop:
            _write_loop(out, lines, keep, definitions, rounds)
        else:
            out.writelines(lines.body)
        out.writelines(lines.after)
    return out


class _Lines:
    """A segment as text, and the names its loop declares."""

    def __init__(self, segment: Segment) -> None:
        self.loop = segment.loop
        self.before, self.reads, self.body, self.writes, self.after = (
            part.getvalue().splitlines()
            for part in (
                segment.before,
                segment.reads,
                segment.body,
                segment.writes,
                segment.after,
            )
        )
        self.positions: dict[str, str] = {}
        for line in segment.positions.getvalue().splitlines():
            position = Declaration.parse(line)
            assert position is not None, line
            self.positions[position.name] = line
        self.vectors = {m[1]: line for line in self.reads if (m := _READ.fullmatch(line))}
        self.declared: dict[str, Declaration] = {}
        self.written_again: list[str] = []

    def declare(self, differing: set[str]) -> None:
        """Find what the loop declares, and move what is the same for the whole row before the loop.

        Args:
            differing: names of what differs between the lanes; the loop's own are added.
        """
        differing |= set(self.vectors)
        same, self.body, self.declared = separate(self.body, differing)
        self.before += same

    def uses(self) -> list[str]:
        """Names in the loop, in order."""
        return names_in([*self.reads, *self.written_again, *self.body, *self.writes])


class _Kept:
    """Which values outlive the loop that computes them."""

    def __init__(self, parsed: Sequence[_Lines], rounds: Rounds) -> None:
        self._rounds = rounds
        self.types: dict[str, str] = {}
        self.made_in: dict[str, _Lines] = {}
        self._earlier: dict[str, _Lines] = {}
        loops = [lines for lines in parsed if lines.loop]
        missing: list[list[str]] = []
        for lines in loops:
            own = {*lines.declared, *lines.vectors}
            missing.append([n for n in lines.uses() if n in self._earlier and n not in own])
            for name in own:
                self._earlier.setdefault(name, lines)
        self._wanted = {name for names in missing for name in names}
        for lines, names in zip(loops, missing, strict=True):
            for name in names:
                self._bring(name, lines)

    def _bring(self, name: str, into: _Lines) -> None:
        """Make a value of an earlier loop known in this one."""
        source = self._earlier[name]
        if name in into.declared or name in into.vectors:
            return
        if name in source.vectors:
            into.reads.insert(0, source.vectors[name])
            into.vectors[name] = source.vectors[name]
            return
        value = source.declared[name]
        parts = [part for part in value.names if part in self._earlier]
        if value.kind in _UNTYPED or (value.is_cheap and self._wanted.issuperset(parts)):
            for part in parts:
                self._bring(part, into)
            into.written_again.append(value.line)
        else:
            self.types[name] = value.kind
            self.made_in[name] = source
            into.written_again.append(f"{value.kind} {name} = {self._place(name)};")
        into.declared[name] = value

    def _place(self, name: str) -> str:
        lanes = self._rounds.lanes
        index = "round" if lanes == 1 else f"round * {lanes} + lane"
        return f"kept_{name}[{index}]"

    def declare(self, out: IndentedBuffer) -> None:
        for name, kind in self.types.items():
            out.writeline(f"{kind} kept_{name}[{self._rounds.count * self._rounds.lanes}];")

    def saved_by(self, lines: _Lines) -> list[str]:
        """What a loop puts aside at the end of its body."""
        return [
            f"{self._place(name)} = {name};"
            for name, source in self.made_in.items()
            if source is lines
        ]


def _write_loop(
    out: IndentedBuffer, lines: _Lines, keep: _Kept, definitions: dict[str, str], rounds: Rounds
) -> None:
    whole_rounds = rounds.length % rounds.stride == 0
    whole_lanes = rounds.length % rounds.lanes == 0
    kind, base, lanes = rounds.index_type, rounds.base, rounds.lanes
    out.writelines(["[unroll]", f"for (int round = 0; round < {rounds.count}; ++round)", "{"])
    with out.indent():
        own = f"{kind}(column)" if lanes == 1 else f"{kind}(column) * {lanes}"
        out.writeline(f"const {kind} {base} = round * {rounds.stride} + {own};")
        if not whole_rounds:
            # Only the last round can lie behind the end of the row.
            inside = f"{base} < {rounds.length}"
            if rounds.count > 1:
                inside = f"round < {rounds.count - 1} || {inside}"
            out.writelines([f"if ({inside})", "{"])
        with out.indent(int(not whole_rounds)):
            count = str(lanes) if whole_lanes else f"int(min({lanes}, {rounds.length} - {base}))"
            if lines.reads or lines.writes or not whole_lanes:
                out.writeline(f"const int count = {count};")
            out.writelines(lines.reads)
            if lanes > 1:
                out.writelines(["[unroll]", f"for (int lane = 0; lane < {lanes}; ++lane)", "{"])
            with out.indent(int(lanes > 1)):
                if not whole_lanes:
                    out.writeline("if (lane >= count) break;")
                element = f"{base} + lane" if lanes > 1 else base
                out.writeline(f"const {kind} {rounds.variable} = {element};")
                needed = _with_causes(lines.uses(), definitions)
                out.writelines(line for name, line in definitions.items() if name in needed)
                out.writelines([*lines.written_again, *lines.body, *keep.saved_by(lines)])
            if lanes > 1:
                out.writeline("}")
            out.writelines(lines.writes)
        if not whole_rounds:
            out.writeline("}")
    out.writeline("}")


def _with_causes(used: Iterable[str], definitions: dict[str, str]) -> set[str]:
    """The defined names among those used, and what their definitions use."""
    found: set[str] = set()
    pending = [name for name in used if name in definitions]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [part for part in names_in([definitions[name]]) if part in definitions]
    return found
