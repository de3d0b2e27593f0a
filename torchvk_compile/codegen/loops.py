"""The loops of a kernel: along the reduced elements, over the lanes, unrolled where rows stay in registers.

In: the lines of a segment, by the place they belong to. Out: the kernel's body. Forbidden: knowing what the lines
compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.virtualized import V

from torchvk_compile.codegen import layout, resident
from torchvk_compile.codegen.declarations import Declaration, separate

if TYPE_CHECKING:
    from torch._inductor.codegen.simd import IterationRangesRoot


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
        lanes, index_type = self.layout.lanes, self.index_dtype
        length = self.collector.extent(tree)
        base = f"{tree.prefix}base"
        whole = V.graph.sizevars.statically_known_multiple_of(tree.numel, lanes)
        count = str(lanes) if whole else f"int(min({index_type}({lanes}), {length} - {base}))"
        self.body.writeline(f"const int count = {count};")
        self.body.splice(self.vector_loads)
        self.body.writelines(["[unroll]", f"for (int lane = 0; lane < {lanes}; ++lane)", "{"])
        with self.body.indent():
            if not whole:
                self.body.writeline("if (lane >= count) break;")
            self.body.writeline(f"const {index_type} {tree.name} = {base} + lane;")
            self._splice_lane_code()
        self.body.writeline("}")
        self.body.splice(self.vector_stores)
