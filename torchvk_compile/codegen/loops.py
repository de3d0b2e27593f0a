"""The loops of a kernel: along the reduced elements, over the lanes, unrolled where rows stay in registers.

In: the lines of a segment, by the place they belong to. Out: the kernel's body. Forbidden: knowing what the lines
compute.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.virtualized import V

from torchvk_compile.codegen import layout, resident
from torchvk_compile.codegen.declarations import Declaration, separate

if TYPE_CHECKING:
    from torch._inductor.codegen.simd import IterationRangesRoot


_MOST_READS_AHEAD = 8
"""Vectors that an invocation reads a turn; with more, one turn waits for enough memory."""


@dataclasses.dataclass(frozen=True)
class VectorRead:
    """Consecutive elements that a turn reads at once: their type, the variable, where they come from."""

    kind: str
    name: str
    expression: str


class LoopCodegen:
    """The part of `SlangKernel` that puts segments together."""

    profile: Any
    layout: layout.WorkgroupLayout
    collector: Any
    features: Any
    index_dtype: str
    inside_reduction: bool
    cse: Any
    body: IndentedBuffer
    loads: IndentedBuffer
    compute: IndentedBuffer
    stores: IndentedBuffer
    prefix: IndentedBuffer
    lane_indexing: IndentedBuffer
    vector_reads: list[VectorRead]
    vector_loads: IndentedBuffer
    vector_stores: IndentedBuffer
    after_loop: IndentedBuffer
    kept_after_loop: set[CSEVariable]
    bounds_checks: list[tuple[str, frozenset[Any]]]
    resident_segments: list[resident.Segment]
    _row_tree: Any
    _reduction_tree: Any
    _columns_may_overhang: Any
    has_scan: Any

    def codegen_body(self) -> None:
        """Close the current segment and append it to the body."""
        pending = (
            self.loads,
            self.compute,
            self.stores,
            self.vector_loads,
            self.prefix,
            self.after_loop,
        )
        if not any(pending):
            return
        reduction = self.features.is_reduction() and self.inside_reduction
        if self.layout.rounds:
            self._keep_segment(reduction)
            self.bounds_checks.clear()
            return
        if reduction and not self.layout.persistent and not self.has_scan():
            self._move_invariants()
        self.body.splice(self.prefix)
        if reduction and not self.layout.persistent:
            self._loop_segment()
            self.cse.invalidate(self.kept_after_loop)  # type: ignore[arg-type]
            self._reduction_tree().cache_clear()
            self.bounds_checks.clear()
        elif self.layout.turns > 1:
            self._take_turns(self._row_tree())
        elif self.layout.lanes > 1 and not self.features.is_reduction():
            self._lane_segment(self._row_tree())
        else:
            self._splice_lane_code()
        self.body.splice(self.after_loop)
        for part in (*pending, self.lane_indexing, self.vector_stores):
            part.clear()

    def _move_invariants(self) -> None:
        """Put what all iterations of the loop along the row have in common before it."""
        tree = self._reduction_tree()
        outside = "\n".join(part.getvalue() for part in (self.lane_indexing, self.vector_loads))
        declared = (Declaration.parse(line) for line in outside.splitlines())
        differing = {tree.name, "lane", *(d.name for d in declared if d is not None)}
        for part in (self.loads, self.compute):
            same, rest, _ = separate(part.getvalue().splitlines(), differing)
            self.prefix.writelines(same)
            part.clear()
            part.writelines(rest)

    def _keep_segment(self, loop: bool) -> None:
        """Put the current segment aside, for `resident.assemble`; the values of its loop stay known."""
        reads, body = self.vector_loads, IndentedBuffer()
        for part in (self.loads, self.compute, self.stores):
            body.splice(part)
        self.resident_segments.append(
            resident.Segment(
                loop,
                self.prefix,
                self.lane_indexing,
                reads,
                body,
                self.vector_stores,
                self.after_loop,
            )
        )
        if loop:
            self._reduction_tree().cache_clear()
        for name in ("prefix", "lane_indexing", "vector_loads", "vector_stores", "after_loop"):
            setattr(self, name, IndentedBuffer())
        for part in (self.loads, self.compute, self.stores):
            part.clear()

    def _assemble_resident(self) -> None:
        tree = self._reduction_tree()
        rounds = resident.Rounds(
            variable=tree.name,
            base=f"{tree.prefix}base",
            index_type=self.index_dtype,
            length=int(tree.numel),
            columns=self.layout.columns,
            lanes=self.layout.lanes,
            count=self.layout.rounds,
        )
        self.body.splice(resident.assemble(self.resident_segments, rounds))

    def loop_base(self) -> str:
        """The variable of a loop in step: the element of the workgroup's first column."""
        return f"{self._reduction_tree().prefix}base"

    def _loop_in_step(self) -> None:
        tree, index_type, base = self._reduction_tree(), self.index_dtype, self.loop_base()
        length, columns = self.collector.extent(tree), self.layout.columns
        own = f"{base} + {index_type}(column)" if columns > 1 else base
        self.body.writeline(
            f"for ({index_type} {base} = 0; {base} < {length}; {base} += {columns})"
        )
        self.body.writeline("{")
        with self.body.indent():
            if self._columns_may_overhang():
                self.body.writeline(f"const bool column_exists = {own} < {length};")
                self.body.writeline(f"const {index_type} {tree.name} = min({own}, {length} - 1);")
            else:
                self.body.writeline(f"const {index_type} {tree.name} = {own};")
            self._splice_lane_code()
        self.body.writeline("}")

    def first_row(self) -> str:
        """The variable of the first of an invocation's iterations, where it takes turns."""
        return f"{self._row_tree().prefix}first"

    def unsigned_index(self) -> str:
        """The type in which indices are compared: groups may overshoot, and one beyond the last row can pass 2^31."""
        return "uint" if self.index_dtype == "int" else "uint64_t"

    def _take_turns(self, tree: IterationRangesRoot) -> None:
        """The turns of an invocation; the vectors that it reads in all of them are under way together."""
        ahead = self.vector_reads if len(self.vector_reads) <= _MOST_READS_AHEAD else []
        if ahead:
            turns = self.layout.turns
            self.body.writelines(f"{read.kind} {read.name}_ahead[{turns}];" for read in ahead)
            with self._turn(tree):
                self._count_lanes(tree)
                for read in ahead:
                    self.body.writeline(f"{read.name}_ahead[turn] = {read.expression};")
        with self._turn(tree):
            if self.layout.lanes == 1:
                self._splice_lane_code()
            else:
                self._count_lanes(tree)
                for read in self.vector_reads:
                    value = f"{read.name}_ahead[turn]" if ahead else read.expression
                    self.body.writeline(f"let {read.name} = {value};")
                self._for_lanes(tree)
        self.vector_reads.clear()

    @contextlib.contextmanager
    def _turn(self, tree: IterationRangesRoot) -> Iterator[None]:
        """The block of a loop over the turns."""
        index_type, lanes, turns = self.index_dtype, self.layout.lanes, self.layout.turns
        width, length = self.layout.rows * lanes, self.collector.extent(tree)
        variable = f"{tree.prefix}base" if lanes > 1 else tree.name
        self.body.writelines(["[unroll]", f"for (int turn = 0; turn < {turns}; ++turn)", "{"])
        with self.body.indent():
            self.body.writeline(
                f"const {index_type} {variable} = {self.first_row()} + turn * {width};"
            )
            if not V.graph.sizevars.statically_known_multiple_of(tree.numel, width * turns):
                unsigned = self.unsigned_index()
                self.body.writeline(f"if ({unsigned}({variable}) >= {unsigned}({length})) break;")
            yield
        self.body.writeline("}")

    def _loop_segment(self) -> None:
        if self.has_scan():
            self._loop_in_step()
            return
        tree, index_type, lanes = self._reduction_tree(), self.index_dtype, self.layout.lanes
        length, step = self.collector.extent(tree), self.layout.columns * lanes
        variable = f"{tree.prefix}base" if lanes > 1 else tree.name
        first = f"{tree.prefix}first"
        start = f"{index_type}(column)" if lanes == 1 else f"{index_type}(column) * {lanes}"
        ahead = layout.rounds_ahead(self.profile, lanes)
        if ahead == 1:
            self.body.writeline(
                f"for ({index_type} {variable} = {start}; {variable} < {length}; {variable} += {step})"
            )
            self._round(tree)
            return
        self.body.writeline("{")
        with self.body.indent():
            self.body.writeline(f"{index_type} {first} = {start};")
            self.body.writeline(
                f"for (; {first} < {length} - {step * (ahead - 1)}; {first} += {step * ahead})"
            )
            self.body.writeline("{")
            with self.body.indent():
                self.body.writelines(["[unroll]", f"for (int ahead = 0; ahead < {ahead}; ++ahead)"])
                self._round(tree, f"const {index_type} {variable} = {first} + ahead * {step};")
            self.body.writeline("}")
            if not V.graph.sizevars.statically_known_multiple_of(tree.numel, step * ahead):
                self.body.writeline(f"for (; {first} < {length}; {first} += {step})")
                self._round(tree, f"const {index_type} {variable} = {first};")
        self.body.writeline("}")

    def _round(self, tree: IterationRangesRoot, declaration: str = "") -> None:
        """The block of a loop along the row."""
        self.body.writeline("{")
        with self.body.indent():
            if declaration:
                self.body.writeline(declaration)
            if self.layout.lanes > 1:
                self._lane_segment(tree)
            else:
                self._splice_lane_code()
        self.body.writeline("}")

    def _splice_lane_code(self) -> None:
        for part in (self.lane_indexing, self.loads, self.compute, self.stores):
            self.body.splice(part)

    def _lane_segment(self, tree: IterationRangesRoot) -> None:
        self._count_lanes(tree)
        self._for_lanes(tree)

    def _lanes_are_whole(self, tree: IterationRangesRoot) -> bool:
        return V.graph.sizevars.statically_known_multiple_of(tree.numel, self.layout.lanes)

    def _count_lanes(self, tree: IterationRangesRoot) -> None:
        lanes, index_type = self.layout.lanes, self.index_dtype
        rest = f"{self.collector.extent(tree)} - {tree.prefix}base"
        whole = self._lanes_are_whole(tree)
        count = str(lanes) if whole else f"int(min({index_type}({lanes}), {rest}))"
        self.body.writeline(f"const int count = {count};")

    def _for_lanes(self, tree: IterationRangesRoot) -> None:
        lanes, index_type, base = self.layout.lanes, self.index_dtype, f"{tree.prefix}base"
        self.body.splice(self.vector_loads)
        self.body.writelines(["[unroll]", f"for (int lane = 0; lane < {lanes}; ++lane)", "{"])
        with self.body.indent():
            if not self._lanes_are_whole(tree):
                self.body.writeline("if (lane >= count) break;")
            self.body.writeline(f"const {index_type} {tree.name} = {base} + lane;")
            self._splice_lane_code()
        self.body.writeline("}")
        self.body.splice(self.vector_stores)
