"""A kernel written by hand (a template) with Inductor's fused pointwise nodes behind its store.

In: a `TemplateBuffer`, the names its shell gives to the output's indices, and fused epilogue
nodes. Out: Slang source and a `DispatchLine`. Forbidden: knowing what the template computes (its
subclass and its shell do).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.codegen.simd import IterationRangesEntry
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.utils import sympy_index_symbol, sympy_product, sympy_subs
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.symbol import SymT, free_symbol_is_type

from torchvk_compile.codegen.dtypes import compute_dtype, compute_type
from torchvk_compile.codegen.kernel import SlangKernel, grid
from torchvk_compile.codegen.lanes import LaneAccess, lane_access
from torchvk_compile.codegen.layout import WorkgroupLayout
from torchvk_compile.codegen.lines import DispatchLine
from torchvk_compile.codegen.templates import KERNEL_NAME, render

Epilogue = Callable[[CSEVariable, Sequence[sympy.Expr]], Any]
"""From the accumulated value and the output's indices to the value stored, through `V.ops`."""


class TemplateKernel(SlangKernel):
    """A Jinja shell whose store step is generated.

    The shell computes `layout.lanes` consecutive elements along the output's last dimension at a
    time and includes `store_step` where it has them. There the variables named by `index_names`
    hold the output's indices, of the last of them ``<name>_first`` the first lane's, and `value` is
    the vector of accumulated values (a scalar with one lane).

    Args:
        output: the buffer the template fills.
        index_names: variables of the shell for the indices of the output, outermost first.
        value: the shell's expression for the accumulated values.
        accumulator: dtype of the accumulated values.
        epilogue: what happens to an accumulated value before it is rounded to the output's dtype.
        template: file name of the shell in `codegen_templates`.
        layout: size of the workgroup, lanes of the store step, subgroup size if the shell relies
            on one.
        configuration: see `KernelSpec`.
    """

    shares_loads = False  # a shell may ask for lanes that all lie behind the end

    def __init__(
        self,
        output: ir.TemplateBuffer,
        *,
        index_names: Sequence[str],
        value: str,
        accumulator: torch.dtype,
        epilogue: Epilogue | None,
        template: str,
        layout: WorkgroupLayout,
        configuration: str,
    ) -> None:
        self._output = output
        size = [V.graph.sizevars.simplify(s) for s in output.get_size()]
        super().__init__(
            {"x": sympy_product(size)}, features=SIMDKernelFeatures([], sympy_product(size))
        )
        self.layout = layout
        self.configuration = configuration
        self._size = size
        self._indices = [sympy_index_symbol(name) for name in index_names]
        self._value = value
        self._accumulator = accumulator
        self._epilogue = epilogue
        self._template = template
        self._index_dtype = self._choose_index_dtype()
        self.prologue_fused_inputs: set[str] = set()
        self.groups: sympy.Expr = sympy.Integer(1)

    # What the subclass provides ------------------------------------------------------------------

    def shell_values(self) -> dict[str, Any]:
        """Values for the shell's Jinja variables; may ask for arguments (see `argument`)."""
        raise NotImplementedError

    def product_flops(self) -> sympy.Expr:
        """Floating-point operations of the shell, without what is fused behind it."""
        raise NotImplementedError

    # What the shell can ask for ------------------------------------------------------------------

    def argument(self, name: str, size: sympy.Expr) -> str:
        """An argument that carries a size or stride in elements."""
        return self.collector.size(name, size)

    # What the scheduling asks for ----------------------------------------------------------------

    def codegen_template(self, epilogue_nodes: Sequence[Any]) -> str:
        """The entry point's source with the epilogue nodes inside."""
        operands = {node.get_name() for node in self._output.inputs}
        with self:
            self._name_iteration()
            self._store_output(rounded=bool(epilogue_nodes))
            for node in epilogue_nodes:
                # Other workgroups may still read an operand when this one stores.
                if not operands & node.used_buffer_names():
                    node.decide_inplace_update()
                node.codegen(self.split_and_set_ranges(node.get_ranges()))
        # Only now it is known which buffers are internal, so that their stores disappear.
        with V.set_kernel_handler(self):
            return self._render()

    def attribute_to(self, nodes: Sequence[Any]) -> None:
        super().attribute_to(nodes)
        if self._accumulator.is_floating_point:
            flops = self.cost.flops + self.product_flops()
            self.cost = dataclasses.replace(self.cost, flops=flops)

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Put the dispatch of this kernel into the wrapper."""
        V.graph.wrapper_code.writeline(
            DispatchLine(
                wrapper=V.graph.wrapper_code,
                kernel=name,
                groups=grid(self.groups),
                operands=self.collector.operands(),
                reads=self.collector.reads(),
                writes=self.collector.writes(),
                origins=self.origins,
                cost=self.cost,
            )
        )

    # Iteration: every index is an expression of the shell's variables ----------------------------

    def _name_iteration(self) -> None:
        tree = self.range_trees[0]
        for entry, symbol, length in zip(
            tree.construct_entries(self._size), self._indices, self._size, strict=True
        ):
            if V.graph.sizevars.statically_known_equals(length, 1):
                continue
            entry.set_name(symbol.name)
            self.range_tree_nodes[symbol] = entry
            tree.var_ranges[symbol] = length

    def codegen_indexing(self, expr: sympy.Expr) -> sympy.Expr:
        """The index in the shell's variables, whatever way a fused node splits its iterations."""
        expr = V.graph.sizevars.simplify_with_ranges(expr, self.var_ranges())
        replacements = {
            symbol: self._in_shell_terms(self.range_tree_nodes[symbol])
            for symbol in expr.free_symbols
            if symbol in self.range_tree_nodes and symbol not in self._indices
        }
        if not replacements:
            return expr
        return V.graph.sizevars.simplify_with_ranges(
            sympy_subs(expr, replacements), self.var_ranges()
        )

    def _in_shell_terms(self, entry: IterationRangesEntry) -> sympy.Expr:
        linear = sympy.Integer(0)
        for symbol, length in zip(self._indices, self._size, strict=True):
            own = (
                sympy.Integer(0) if V.graph.sizevars.statically_known_equals(length, 1) else symbol
            )
            linear = linear * length + own
        expr = sympy_subs(entry.expr, {entry.root.index_sym(): sympy.expand(linear)})
        return V.graph.sizevars.simplify_with_ranges(expr, self.var_ranges())

    def _lane_access(self, index: sympy.Expr) -> LaneAccess | None:
        if self.layout.lanes == 1 or free_symbol_is_type(index, SymT.TMP):
            return None
        return lane_access(index, self._indices[-1], self.layout.lanes)

    def _base_index(self, index: sympy.Expr) -> str:
        return self.index_to_str(sympy_subs(index, {self._indices[-1]: self._first()}))

    def _first(self) -> sympy.Symbol:
        return sympy_index_symbol(f"{self._indices[-1].name}_first")

    # The store step ------------------------------------------------------------------------------

    def _store_output(self, *, rounded: bool) -> None:
        value: Any = self.cse.namedvar("accumulated", dtype=self._accumulator)
        if self._epilogue is not None:
            value = self._epilogue(value, self._indices)
        dtype = self._output.get_dtype()
        if dtype != self._accumulator and (rounded or compute_dtype(dtype) != self._accumulator):
            # Fused nodes see what eager mode would have stored.
            value = ops.to_dtype(value, dtype, src_dtype=self._accumulator)
        indexer = self._output.get_layout().make_indexer()
        ops.store(self._output.get_name(), indexer(self._indices), value)

    def store_step(self) -> str:
        """Slang statements that finish and store the elements an invocation has."""
        code = IndentedBuffer()
        code.splice(self.prefix)
        lanes, index_type = self.layout.lanes, self.index_dtype
        last, first = self._indices[-1].name, self._first().name
        if lanes == 1:
            code.writeline(f"const {index_type} {last} = {first};")
            self._splice_lane(code, self._value)
            return code.getvalue()
        length = self._size[-1]
        whole = V.graph.sizevars.statically_known_multiple_of(length, lanes)
        count = str(lanes)
        if not whole:
            count = f"int(min({index_type}({lanes}), {self.index_to_str(length)} - {first}))"
        code.writeline(f"const int count = {count};")
        code.splice(self.vector_loads)
        code.writelines(["[unroll]", f"for (int lane = 0; lane < {lanes}; ++lane)"])
        if not whole:
            code.writeline("if (lane < count)")
        code.writeline("{")
        with code.indent():
            code.writeline(f"const {index_type} {last} = {first} + lane;")
            self._splice_lane(code, f"{self._value}[lane]")
        code.writeline("}")
        code.splice(self.vector_stores)
        return code.getvalue()

    def _splice_lane(self, code: IndentedBuffer, value: str) -> None:
        code.writeline(f"const {compute_type(self._accumulator)} accumulated = {value};")
        for part in (self.lane_indexing, self.loads, self.compute, self.stores):
            code.splice(part)

    def _render(self) -> str:
        values = self.shell_values()
        store = self.store_step()
        return render(
            self._template,
            kernel=KERNEL_NAME,
            layout=self.layout,
            index_type=self.index_dtype,
            store=store,
            arguments=self.collector.arguments(),
            **values,
        )

    def _choose_index_dtype(self) -> torch.dtype:
        """int32 where every element can be indexed with it."""
        from torch._inductor.codegen.simd import SIMDScheduling

        buffers = [self._output, *self._output.inputs]
        fits = SIMDScheduling.can_use_32bit_indexing(self._features_numel(), buffers)
        return torch.int32 if fits else torch.int64

    def _features_numel(self) -> sympy.Expr:
        return sympy_product(self._size)
