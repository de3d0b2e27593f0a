"""One fused kernel: Inductor's loop IR becomes the body of a Slang entry point.

In: loop nodes (through the ops handler), one at a time. Out: Slang source and a `DispatchLine`. Forbidden: choosing
what is fused (Inductor's scheduler does), knowing how plans are run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence, Set
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSE, CSEVariable, DeferredLine, IndentedBuffer
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot, SIMDKernel
from torch._inductor.ops_handler import StoreMode
from torch._inductor.utils import sympy_subs
from torch._inductor.virtualized import V
from torch.utils._sympy.symbol import SymT, free_symbol_is_type, symbol_is_type

from torchvk_compile import config
from torchvk_compile.codegen import layout, resident, transposes
from torchvk_compile.codegen.arguments import ArgumentCollector
from torchvk_compile.codegen.column_sums import ColumnSum, ColumnSumCodegen
from torchvk_compile.codegen.costs import Cost, cost_of_kernel
from torchvk_compile.codegen.device_profile import current_profile
from torchvk_compile.codegen.dtypes import (
    compute_dtype,
    compute_type,
    literal,
    storage_type,
    to_compute,
    to_storage,
)
from torchvk_compile.codegen.grid import grid, is_folded, linear_groups
from torchvk_compile.codegen.lanes import LaneAccess, lane_access, starts_aligned
from torchvk_compile.codegen.lines import DispatchLine
from torchvk_compile.codegen.loops import LoopCodegen, VectorRead
from torchvk_compile.codegen.overrides import SlangOverrides
from torchvk_compile.codegen.printer import SlangExprPrinter
from torchvk_compile.codegen.reductions import ReductionCodegen
from torchvk_compile.codegen.scans import ScanCodegen
from torchvk_compile.codegen.searches import SearchCodegen
from torchvk_compile.codegen.staging import StagingCodegen
from torchvk_compile.codegen.templates import KERNEL_NAME, render

# Store modes of `lowering/scatter.py`, and the library's name for what they do.
_ATOMICS = {
    "atomic_add": "Plus",
    "atomic_mul": "Times",
    "atomic_max": "Larger",
    "atomic_min": "Smaller",
}

# Dtypes that are stored as something else have atomics of their own, which take the value as it is computed with.
_ATOMIC_SUFFIXES = {torch.float16: "Half", torch.bfloat16: "Bfloat16", torch.bool: "Bool"}


_OUT_OF_RANGE = "index out of range: got {0}, the dimension has size {1}"
"""Message of a bounds check; the kernel reports the index (as it was after wrapping) and the size."""


class SlangCSE(CSE[CSEVariable, str]):
    """Common subexpressions, each declared with its type so that the source reads like hand-written code."""

    def generate(self, buffer: IndentedBuffer, expr: Any, **kwargs: Any) -> CSEVariable:
        if isinstance(expr, CSEVariable):
            # Already declared; for results of several values `dtype` is a tuple here.
            return super().generate(buffer, expr, **kwargs)
        dtype = kwargs.get("dtype")
        if dtype is not None and dtype.is_floating_point:
            # Constants that differ as Python's floats may be one literal; it cannot have the bounds of both.
            kwargs.pop("bounds", None)
        self.prefix = f"{compute_type(dtype)} " if dtype is not None else "var "
        return super().generate(buffer, expr, **kwargs)


class SlangKernel(
    LoopCodegen,
    ReductionCodegen,
    ColumnSumCodegen,
    ScanCodegen,
    SearchCodegen,
    StagingCodegen,
    SIMDKernel,
):
    """Pointwise and reduction kernels.

    The body is a row of segments. A segment of a reduction kernel is one loop along the reduced elements (or
    straight code, when every invocation sees at most one of them), or straight code about whole rows. Inside a
    segment an invocation handles `layout.lanes` consecutive iterations: loads and stores that are consecutive
    too happen once, as vectors, around a loop over the lanes.
    """

    overrides = SlangOverrides
    sexpr = SlangExprPrinter().doprint
    kexpr = sexpr
    suffix = ";"
    shares_loads = True
    """An element that all lanes of an invocation need is loaded before their loop, where the first lane exists."""

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        self.profile = current_profile()
        super().__init__(tiling, **kwargs)
        self.cse = SlangCSE("", self.suffix)
        self.collector = ArgumentCollector(self)
        self.modules: set[str] = {"torchvk_memory", "torchvk_grid"}
        self.origins: frozenset[torch.fx.Node] = frozenset()
        self.cost = Cost()
        self.part: str | None = None
        self.configuration = ""
        self.helpers = IndentedBuffer()
        self.prefix = IndentedBuffer()
        self.lane_indexing = IndentedBuffer()
        self.vector_reads: list[VectorRead] = []
        self.vector_loads = IndentedBuffer()
        self.vector_stores = IndentedBuffer()
        self.after_loop = IndentedBuffer()
        self.kept_after_loop: set[CSEVariable] = set()
        self.resident_segments: list[resident.Segment] = []
        self.column_sums: list[ColumnSum] = []
        self.expected_sums = 0
        self._summing = False
        self.tile: transposes.Tile | None = None
        self.staging = IndentedBuffer()
        self._staged: dict[str, str] = {}
        # What says that an index is out of range, and the variables of that index; of the scope that is open.
        self.bounds_checks: list[tuple[str, frozenset[Any]]] = []
        self._bounds_check_names = (f"outside{number}" for number in itertools.count())
        self.layout = layout.plain_layout(1)

    # What Inductor asks of a kernel class ------------------------------------------------------------------

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return compute_type(dtype)

    def finalize_indexing(self, indices: Sequence[sympy.Expr]) -> None:
        """Lay the iterations out over the workgroup, now that every access of the kernel is known."""
        if self.features.is_reduction():
            self.layout = self._choose_reduction_layout(indices)
            self.persistent_reduction = self.layout.persistent
            self._reduction_tree().is_loop = not self.layout.persistent
        else:
            self.tile = self._choose_tile(indices)
            if self.tile is not None:
                self.layout = layout.plain_layout(self.tile.lanes)
            else:
                lanes = layout.LANES if self._lanes_pay(indices) else 1
                self.layout = layout.pointwise_layout(lanes)

    def require(self, module: str) -> None:
        """Import a library module (`codegen_templates/lib`) into the kernel's source."""
        self.modules.add(module)

    # Memory ------------------------------------------------------------------------------------------------

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        dtype = V.graph.get_dtype(name)
        if (scalar := self.collector.host_scalar(name)) is not None:
            return self.cse.generate(self.prefix_code(), scalar, dtype=compute_dtype(dtype))
        pointer = self.args.input(name)
        index = self.prepare_indexing(index)
        register = compute_dtype(dtype)
        inside = [f"!{name}" for name in self._checks_before()]
        if self._load_mask is not None or inside:
            masked = self._load_mask is not None
            other = to_storage(dtype, literal(self._load_other if masked else 0, register))
            mask = " && ".join([str(self._load_mask)] * masked + inside)
            raw = f"loadMasked({pointer}, {self.index_to_str(index)}, {mask}, {other})"
            # The mask is computed in `compute`, so the load follows it there.
            return self.cse.generate(self.compute, to_compute(dtype, raw), dtype=register)
        if free_symbol_is_type(index, SymT.TMP):
            return self._scalar_load(self.compute, pointer, dtype, index)
        access = self._lane_access(index)
        if access is not None and access.contiguous:
            return self._vector_load(name, pointer, dtype, index, access)
        if self.tile is not None and (staged := self._staged_load(name, pointer, dtype, index)):
            return staged
        if self._is_row_invariant(index):
            value = self._scalar_load(self.prefix, pointer, dtype, index)
            self.kept_after_loop.add(value)
            return value
        if access is not None and self.shares_loads:
            # All lanes read the element of the first: once is enough.
            place = self._base_index(index)
            return self._element_load(self.vector_loads, pointer, dtype, place)
        return self._scalar_load(self.loads, pointer, dtype, index)

    def indirect_load(self, name: str, index: sympy.Expr) -> CSEVariable:
        # The index is computed in `compute`, so the load follows it there.
        return self.load(name, index)

    def store(
        self, name: str, index: sympy.Expr, value: CSEVariable, mode: StoreMode = None
    ) -> None:
        dtype = V.graph.get_dtype(name)
        pointer = self.args.output(name)
        index = self.prepare_indexing(index)
        if mode is not None:
            line = self._atomic_update(mode, dtype, pointer, index, value)
            self._write_store(name, self._if_inside(index, line))
            return
        text = to_storage(dtype, str(value))
        access = self._lane_access(index)
        if access is not None and access.contiguous and not self._checks_before():
            self._vector_store(name, pointer, dtype, index, text, access)
            return
        line = f"store({pointer}, {self.index_to_str(index)}, {text});"
        self._write_store(name, self._if_inside(index, line))

    def _if_inside(self, index: sympy.Expr, line: str) -> str:
        """The line, skipped where a part of its index was found to be out of range."""
        checks = self._checks_before(index.free_symbols)
        return f"if (!({' || '.join(checks)})) {line}" if checks else line

    def _checks_before(self, variables: Set[sympy.Basic] = frozenset()) -> list[str]:
        """The bounds checks that every access depends on, and those of an index with these variables."""
        return [name for name, own in self.bounds_checks if not own or own & variables]

    def _atomic_update(
        self, mode: str, dtype: torch.dtype, pointer: str, index: sympy.Expr, value: CSEVariable
    ) -> str:
        """The statement that combines a value with an element of memory, indivisibly."""
        if mode not in _ATOMICS:
            raise NotImplementedError(f"store mode {mode!r}")
        self.require("torchvk_atomics")
        suffix = _ATOMIC_SUFFIXES.get(dtype, "")
        if mode != "atomic_add":
            function = f"atomicUpdate{suffix}<{_ATOMICS[mode]}>"
        elif dtype is torch.float32 and self.profile.float_atomic_add:
            function = "atomicAddHardware"
        else:
            function = f"atomicAdd{suffix}"
        return f"{function}({pointer}, {self.index_to_str(index)}, {value});"

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Report an index outside of ``[0, size)``: loads continue with 0, stores do not happen.

        An index that follows from the iteration alone cannot be told from others in an access, so all accesses
        after it are kept from memory.
        Behind the end of a row an index that comes from a scan may be anything; it is not reported.
        """
        if not (lower or upper):
            return
        index, limit = self.index_to_str(self.prepare_indexing(expr)), self.index_to_str(size)
        found = [s for s in sorted(expr.free_symbols, key=str) if symbol_is_type(s, SymT.TMP)]
        limits = [f"{index} < 0"] if lower else []
        limits += [f"{index} >= {limit}"] if upper else []
        condition = " || ".join(limits)
        if self._load_mask is not None:
            condition = f"{self._load_mask} && ({condition})"
        self.require("torchvk_assert")
        guard = "if (column_exists) " if self._column_may_be_missing() else ""
        errors, code = self.collector.assertion(_OUT_OF_RANGE)
        outside = next(self._bounds_check_names)
        self.bounds_checks.append((outside, frozenset(found)))
        self.compute.writelines(
            [
                f"const bool {outside} = {condition};",
                f"if ({outside})",
                "{",
                f"    {guard}reportIndex({errors}, {code}, int64_t({index}), int64_t({limit}));",
                *(f"    {symbol} = 0;" for symbol in found),
                "}",
            ]
        )

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        self.require("torchvk_assert")
        errors, code = self.collector.assertion(msg)
        guard = "column_exists && " if self._column_may_be_missing() else ""
        self.compute.writeline(f"if ({guard}!{cond}) reportFailure({errors}, {code});")

    def _column_may_be_missing(self) -> bool:
        return self.features.is_reduction() and self.inside_reduction and self.guards_columns()

    def _scalar_load(
        self, buffer: IndentedBuffer, pointer: str, dtype: torch.dtype, index: sympy.Expr
    ) -> CSEVariable:
        return self._element_load(buffer, pointer, dtype, self.index_to_str(index))

    def _element_load(
        self, buffer: IndentedBuffer, pointer: str, dtype: torch.dtype, place: str
    ) -> CSEVariable:
        value = to_compute(dtype, f"load({pointer}, {place})")
        return self.cse.generate(buffer, value, dtype=compute_dtype(dtype))

    def _vector_load(
        self, name: str, pointer: str, dtype: torch.dtype, index: sympy.Expr, access: LaneAccess
    ) -> CSEVariable:
        lanes = self.layout.lanes
        aligned = "ALIGNED" if access.aligned and starts_aligned(name) else "false"
        raw = (
            f"loadVector<{storage_type(dtype)}, {lanes}, {aligned}>"
            f"({pointer}, {self._base_index(index)}, count)"
        )
        vector = self.cse.try_get(raw)
        if vector is None:
            vector = self.cse.newvar()
            self.cse.put(raw, vector)
            if self.layout.turns > 1:
                kind = f"vector<{storage_type(dtype)}, {lanes}>"
                self.vector_reads.append(VectorRead(kind, str(vector), raw))
            else:
                self.vector_loads.writeline(f"let {vector} = {raw};")
        return self.cse.generate(
            self.loads, to_compute(dtype, f"{vector}[lane]"), dtype=compute_dtype(dtype)
        )

    def _vector_store(
        self,
        name: str,
        pointer: str,
        dtype: torch.dtype,
        index: sympy.Expr,
        text: str,
        access: LaneAccess,
    ) -> None:
        lanes = self.layout.lanes
        aligned = "ALIGNED" if access.aligned and starts_aligned(name) else "false"
        vector = self.cse.newvar()
        # A buffer that turns out to be internal to the kernel loses all three lines.
        self.vector_loads.writeline(
            DeferredLine(name, f"vector<{storage_type(dtype)}, {lanes}> {vector};")
        )
        self.stores.writeline(DeferredLine(name, f"{vector}[lane] = {text};"))
        line = (
            f"storeVector<{storage_type(dtype)}, {lanes}, {aligned}>"
            f"({pointer}, {self._base_index(index)}, {vector}, count);"
        )
        if self._rows_may_overhang() and self.features.is_reduction():
            line = f"if (row_exists) {line}"
        self.vector_stores.writeline(DeferredLine(name, line))

    def _write_store(self, name: str, line: str) -> None:
        conditions = []
        if self.features.is_reduction():
            if self._rows_may_overhang():
                conditions.append("row_exists")
            if not self.inside_reduction:
                if self.layout.columns > 1:
                    conditions.append("column == 0")
            elif self.guards_columns():
                conditions.append("column_exists")
        if conditions:
            line = f"if ({' && '.join(conditions)}) {line}"
        # What belongs to whole rows is known once the loop is over.
        whole_row = (
            self.features.is_reduction()
            and not self.inside_reduction
            and not self.layout.persistent
        )
        (self.after_loop if whole_row else self.stores).writeline(DeferredLine(name, line))

    # Lanes -------------------------------------------------------------------------------------------------

    def _lane_tree(self) -> IterationRangesRoot | None:
        """The dimension whose consecutive iterations the lanes handle, in the current segment."""
        if self.layout.lanes == 1:
            return None
        if not self.features.is_reduction():
            return self._row_tree()
        return self._reduction_tree() if self.inside_reduction else None

    def _lane_access(self, index: sympy.Expr) -> LaneAccess | None:
        tree = self._lane_tree()
        if tree is None or free_symbol_is_type(index, SymT.TMP):
            return None
        return lane_access(self._in_root_terms(index, tree), tree.index_sym(), self.layout.lanes)

    def _lanes_pay(self, indices: Sequence[sympy.Expr]) -> bool:
        """Whether some access of the kernel becomes a vector and the iterations are enough for it."""
        if "vectors" in config.without:
            return False
        tree = self._reduction_tree() if self.features.is_reduction() else self._row_tree()
        if V.graph.sizevars.optimization_hint(tree.numel, fallback=8192) < layout.LANES:
            return False
        accesses = (
            lane_access(
                self._in_root_terms(self.simplify_indexing(i), tree), tree.index_sym(), layout.LANES
            )
            for i in indices
            if not free_symbol_is_type(i, SymT.TMP)
        )
        return any(access is not None and access.contiguous for access in accesses)

    def _in_root_terms(self, index: sympy.Expr, tree: IterationRangesRoot) -> sympy.Expr:
        entries = {s: e.expr for s, e in self.range_tree_nodes.items() if e.root is tree}
        return sympy_subs(index, entries)

    def _base_index(self, index: sympy.Expr) -> str:
        """The index at the first lane, in terms of the invocation's first iteration."""
        tree = self._lane_tree()
        assert tree is not None
        base = sympy.Symbol(f"{tree.prefix}base", integer=True, nonnegative=True)
        return self.index_to_str(
            sympy_subs(self._in_root_terms(index, tree), {tree.index_sym(): base})
        )

    # Iteration ---------------------------------------------------------------------------------------------

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        text = self.kexpr(self.rename_indexing(entry.expr))
        line = f"const {self.index_dtype} {entry.name} = {text};"
        if entry.is_reduction or not self.features.is_reduction():
            self.lane_indexing.writeline(line)
        else:
            self.indexing_code.writeline(line)

    def prefix_code(self) -> IndentedBuffer:
        """Where code goes that is the same for all iterations of the segment."""
        return self.prefix if self.layout.lanes > 1 or self.inside_reduction else self.loads

    def _is_row_invariant(self, index: sympy.Expr) -> bool:
        """The access is inside a reduction loop and the same in all its iterations."""
        if not (self.inside_reduction and self.features.is_reduction()) or self.layout.persistent:
            return False
        return not any(
            (entry := self.range_tree_nodes.get(symbol)) is not None and entry.is_reduction
            for symbol in index.free_symbols
        )

    def _rows_may_overhang(self) -> bool:
        """The last workgroup may have rows beyond the last one."""
        rows = self.layout.rows
        return not V.graph.sizevars.statically_known_multiple_of(self._row_tree().numel, rows)

    def _columns_may_overhang(self) -> bool:
        numel, sizevars = self._reduction_tree().numel, V.graph.sizevars
        if self.layout.persistent:
            return not sizevars.statically_known_equals(numel, self.layout.columns)
        return not sizevars.statically_known_multiple_of(numel, self.layout.columns)

    def guards_columns(self) -> bool:
        """Whether an invocation may stand behind the last element of its row and has to keep its results to itself."""
        in_step = self.layout.persistent or self.has_scan()
        return in_step and self._columns_may_overhang()

    def _row_tree(self) -> IterationRangesRoot:
        return self.range_trees[0]

    def _reduction_tree(self) -> IterationRangesRoot:
        return self.range_trees[-1]

    def _choose_reduction_layout(self, indices: Sequence[sympy.Expr]) -> layout.WorkgroupLayout:
        numel, length = self.features.numel, self.features.reduction_numel
        hint = V.graph.sizevars.optimization_hint
        inner = self._reduces_inner_dimension(indices)
        vectors = inner and not self.has_scan() and self._lanes_pay(indices)
        return layout.reduction_layout(
            self.profile,
            hint(numel, fallback=1024),
            hint(length, fallback=1024),
            inner=inner,
            static_length=isinstance(length, (int, sympy.Integer)),
            lanes=layout.LANES if vectors else 1,
            held=0 if self.has_scan() else self._elements_held(),
        )

    def _elements_held(self) -> int:
        held = resident.elements_held(self.features, self.expected_sums)
        return held or resident.elements_held(self.features)

    def _reduces_inner_dimension(self, indices: Sequence[sympy.Expr]) -> bool:
        """Whether more accesses are consecutive along the reduction than along the rows.

        Accesses that are the same for all rows stay in the cache; they decide only where there are no others.
        """
        row, column = self._row_tree().index_sym(), self._reduction_tree().index_sym()
        whole, shared = [0, 0], [0, 0]
        for index in indices:
            strides = self.get_strides_of_load(self.simplify_indexing(index))
            along_row, along_column = strides.get(row, 0), strides.get(column, 0)
            if along_column != 0:
                votes = shared if along_row == 0 else whole
                votes[0] += along_column == 1
                votes[1] += along_row == 1 and along_column != 1
        inner, outer = whole if any(whole) else shared
        return inner >= outer

    # Assembly ----------------------------------------------------------------------------------------------

    def codegen_kernel(self, name: str | None = None) -> str:
        """The entry point's source, with a placeholder for its name."""
        self.codegen_body()
        if self.layout.rounds:
            self._assemble_resident()
        reduction, row = self.features.is_reduction(), self._row_tree()
        column = self._reduction_tree() if reduction else None
        helpers = self.helpers.getvalue()
        loops = functools.partial(
            render,
            "loops.slang.j2",
            kernel=name or KERNEL_NAME,
            layout=self.layout,
            tile=self.tile,
            staging=self.staging.getvalue(),
            reduction=reduction,
            index_type=self.index_dtype,
            unsigned=self.unsigned_index(),
            row_name=row.name,
            row_base=f"{row.prefix}base",
            row_first=self.first_row(),
            row_count=self.collector.extent(row),
            folded=is_folded(self._groups()),
            overhang=self._rows_may_overhang(),
            column_name=column.name if column else "",
            column_count=self.collector.extent(column) if column and self.layout.persistent else "",
            column_sums=self.column_sums,
            row_length=int(self._reduction_tree().numel) if self.column_sums else 0,
            columns_overhang=self.layout.persistent and self._columns_may_overhang(),
            indexing=self.indexing_code.getvalue(),
            body=self.body.getvalue(),
            arguments=self.collector.arguments(),
        )
        self.part = helpers + loops(part=True)
        return helpers + loops(part=False)

    def _rows_per_group(self) -> int:
        if self.features.is_reduction():
            return self.layout.rows * self.layout.walk
        return self.layout.rows * self.layout.lanes * self.layout.turns

    def _groups(self) -> sympy.Expr:
        """Workgroups in all."""
        if self.tile is not None:
            return sympy.Integer(self.tile.groups)
        return linear_groups(self._row_tree().numel, self._rows_per_group())

    def attribute_to(self, nodes: Sequence[Any]) -> None:
        """Note what the dispatch computes and costs, from the scheduler nodes the body was generated from."""
        collector = self.collector
        self.origins = frozenset().union(*(node.node.origins for node in nodes))
        self.cost = cost_of_kernel(
            nodes, collector.reads(), collector.writes(), collector.aliases()
        )

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Put the dispatch of this kernel into the wrapper."""
        groups = self._groups()
        V.graph.wrapper_code.writeline(
            DispatchLine(
                wrapper=V.graph.wrapper_code,
                kernel=name,
                groups=grid(groups),
                operands=self.collector.operands(),
                reads=self.collector.reads(),
                writes=self.collector.writes(),
                origins=self.origins,
                cost=self.cost,
                linear_groups=groups,
            )
        )
