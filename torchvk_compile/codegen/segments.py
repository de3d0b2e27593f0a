"""Gathering a wrapper's lines into plans: every unbroken row of device work becomes one submission.

In: Inductor's wrapper lines (allocate, dispatch, reuse, free, and host code between them). Out: the same lines with
each row of device work replaced by one `PlanLine`, and the plans. Forbidden: reordering device work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.wrapper import (
    AllocateLine,
    CommentLine,
    EnterDeviceContextManagerLine,
    ExitDeviceContextManagerLine,
    FreeIfNotReusedLine,
    FreeLine,
    NullLine,
    ReinterpretLine,
    ReuseLine,
    SymbolicCallArgLine,
)
from torch._inductor.utils import LineContext
from torch._inductor.virtualized import V

from torchvk_compile import config, torch_compat
from torchvk_compile.codegen.combined import combine
from torchvk_compile.codegen.device_profile import fingerprint
from torchvk_compile.codegen.lines import BoundOperand, DispatchLine, PlanLine
from torchvk_compile.codegen.origins import origin_of, origins_in_order
from torchvk_compile.plan.graph_plan import (
    ArenaBuffer,
    Dispatch,
    GraphPlan,
    HostScalar,
    Operand,
    OutputBuffer,
    Size,
)

if TYPE_CHECKING:
    from torchvk_compile.codegen.wrapper import PlanWrapperCodegen

_DEVICE_LINES = (
    DispatchLine,
    AllocateLine,
    ReuseLine,
    ReinterpretLine,
    FreeIfNotReusedLine,
    FreeLine,
)
_FREE_LINES = (FreeIfNotReusedLine, FreeLine)
_IGNORED_LINES = (
    NullLine,
    LineContext,
    EnterDeviceContextManagerLine,
    ExitDeviceContextManagerLine,
)

# Arithmetic on sizes and checks of the graph's inputs need nothing from the device, so they may come first.
_HOIST_LINES = (SymbolicCallArgLine, CommentLine, *torch_compat.input_check_lines())


def gather_plans(wrapper: PlanWrapperCodegen) -> tuple[list[Any], dict[str, GraphPlan]]:
    """Replace device work by calls of plans.

    Returns:
        The new lines, and the plans by the name of the variable that holds them.
    """
    lines: list[Any] = []
    plans: dict[str, GraphPlan] = {}
    segment: list[Any] = []
    rest = list(wrapper.lines)

    def close(later: list[Any]) -> None:
        nonlocal segment
        if segment:
            variable = f"{wrapper.plan_prefix}{len(plans)}"
            replaced, plan = _Segment(wrapper, segment, later).build(variable)
            lines.extend(replaced)
            if plan is not None:
                plans[variable] = plan
            segment = []

    for position, line in enumerate(rest):
        if isinstance(line, _IGNORED_LINES):
            continue
        if isinstance(line, _DEVICE_LINES):
            segment.append(line)
        elif _may_come_first(line):
            lines.append(line)
        else:
            close(rest[position:])
            lines.append(line)
    close([])
    return lines, plans


def sole_call(lines: list[Any]) -> PlanLine | None:
    """The one plan call of a wrapper, if nothing else in its gathered lines does anything but check and free."""
    calls = [line for line in lines if isinstance(line, PlanLine)]
    others = [line for line in lines if not isinstance(line, (PlanLine, *_FREE_LINES))]
    return calls[0] if len(calls) == 1 and all(map(_may_come_first, others)) else None


def _may_come_first(line: Any) -> bool:
    if isinstance(line, _HOIST_LINES):
        return True
    text = getattr(line, "line", line)
    return isinstance(text, str) and (
        not text.strip() or text.lstrip().startswith(("#", "assert_size_stride("))
    )


@dataclasses.dataclass
class _Storage:
    """A buffer this segment allocates, under all the names it goes by."""

    node: Any
    first: int = 0
    last: int = 0
    freed: bool = False
    used: bool = False


class _Segment:
    """One row of device work on its way to a plan.

    Args:
        wrapper: the wrapper the lines come from.
        lines: the row.
        later: the wrapper's lines after the row; empty when the graph's return follows.
    """

    def __init__(self, wrapper: PlanWrapperCodegen, lines: list[Any], later: list[Any]) -> None:
        self._wrapper = wrapper
        self._lines = lines
        self._ends_graph = not later
        self._aliases: dict[str, str] = {}
        self._storages: dict[str, _Storage] = {}
        self._dispatches: list[DispatchLine] = []
        self._views: dict[str, Any] = {}
        self._frees: list[Any] = []
        self._outputs = set(V.graph._get_output_names(wrapper.get_graph_outputs()))

    def build(self, variable: str) -> tuple[list[Any], GraphPlan | None]:
        """The lines that take the place of the row, and the plan they call (None without dispatches)."""
        # Allocations, views and frees only name buffers, so that dispatches may be put in an order of their own.
        for line in self._lines:
            if not isinstance(line, DispatchLine):
                self._visit(line)
        dispatches = [line for line in self._lines if isinstance(line, DispatchLine)]
        for line in combine(self._wrapper, dispatches, self._root):
            self._visit_dispatch(line)
        escaping = [
            name for name, storage in self._storages.items() if self._escapes(name, storage)
        ]
        # A buffer that no kernel of this row writes is for host code that follows.
        allocated = [name for name in escaping if not self._storages[name].used]
        produced = [name for name in escaping if self._storages[name].used]
        before = [AllocateLine(self._wrapper, self._storages[name].node) for name in allocated]
        after = self._after(frozenset(self._storages).difference(escaping))
        if not self._dispatches:
            return [*before, *after], None
        plan, call = self._plan(variable, produced)
        return [*before, call, *after], plan

    # Reading the row

    def _visit(self, line: Any) -> None:
        if isinstance(line, AllocateLine):
            self._storages[line.node.get_name()] = _Storage(line.node)
        elif isinstance(line, (ReuseLine, ReinterpretLine)):
            self._alias(line.reused_as.get_name(), line.node.get_name(), line)
        elif isinstance(line, FreeIfNotReusedLine):
            self._free(line)
        else:
            self._frees.append(line)

    def _visit_dispatch(self, line: DispatchLine) -> None:
        step = len(self._dispatches)
        self._dispatches.append(line)
        for name in (*line.reads, *line.writes):
            storage = self._storages.get(self._root(name))
            if storage is not None:
                storage.first = step if not storage.used else storage.first
                storage.used, storage.last = True, step

    def _alias(self, name: str, of: str, line: Any) -> None:
        self._aliases[name] = of
        self._views[name] = line

    def _after(self, internal: frozenset[str]) -> list[Any]:
        """What Python does once the row is submitted: make the views that later code uses, drop what nobody does.

        Args:
            internal: buffers that end with the row, and so do their views.
        """
        needed = {name for name in self._views if self._root(name) not in internal}
        if self._ends_graph:
            needed &= self._outputs
        for name in list(needed):
            while (name := self._aliases[name]) in self._views:
                needed.add(name)
        views = [line for name, line in self._views.items() if name in needed]
        dropped = set(self._views) - needed
        return views + [line for line in self._frees if line.node.get_name() not in dropped]

    def _free(self, line: FreeIfNotReusedLine) -> None:
        if line.is_reused:
            return
        name = line.node.get_name()
        root = self._root(name)
        if root not in self._storages:
            self._frees.append(line)
        elif not self._is_part(name):
            self._storages[root].freed = True

    def _is_part(self, name: str) -> bool:
        """Whether a name is a view into another buffer, which may outlive it: an operand of a concatenation."""
        while name in self._aliases:
            if isinstance(self._views[name], ReinterpretLine):
                return True
            name = self._aliases[name]
        return False

    def _root(self, name: str) -> str:
        while name in self._aliases:
            name = self._aliases[name]
        return name

    def _offset(self, name: str) -> sympy.Expr:
        """Where a name's memory begins in its root's, in bytes."""
        offset = sympy.Integer(0)
        while name in self._aliases:
            line = self._views[name]
            if isinstance(line, ReinterpretLine):
                offset += line.layout.view.get_layout().offset * line.reused_as.get_dtype().itemsize
            name = self._aliases[name]
        return offset

    def _escapes(self, name: str, storage: _Storage) -> bool:
        names = {name, *(alias for alias in self._aliases if self._root(alias) == name)}
        if names & self._outputs:
            return True
        return not storage.freed and not self._ends_graph

    # Writing the plan

    def _plan(self, variable: str, produced: list[str]) -> tuple[GraphPlan, PlanLine]:
        kernels = list(dict.fromkeys(line.kernel for line in self._dispatches))
        scalars = self._scalars()
        sizes = _Sizes()
        nodes = origins_in_order(frozenset().union(*(line.origins for line in self._dispatches)))
        steps = tuple(self._step(line, scalars, sizes, nodes) for line in self._dispatches)
        # Without planning, every intermediate has its memory from the first step to the last.
        whole = (0, len(steps) - 1) if "memory_planning" in config.without else None
        arena = tuple(
            ArenaBuffer(
                name, sizes.bytes_of(storage.node), *(whole or (storage.first, storage.last))
            )
            for name, storage in self._storages.items()
            if storage.used and name not in produced
        )
        outputs = tuple(sizes.output(name, self._storages[name].node) for name in produced)
        inputs = self._inputs()
        device = V.graph.get_current_device_or_throw().index or 0
        graph_name = f"graph{V.graph.graph_id}" if V.graph.graph_id is not None else "graph"
        plan = GraphPlan(
            name=f"{graph_name}_{variable}",
            slang=self._wrapper.slang_module(f"{graph_name}_{variable}", kernels),
            inputs=inputs,
            symbols=tuple(sizes.symbols),
            scalars=tuple(HostScalar(name, dtype) for name, dtype in scalars.values()),
            arena=arena,
            outputs=outputs,
            kernels=tuple(self._wrapper.slang_kernels[kernel].spec for kernel in kernels),
            steps=steps,
            origins=tuple(origin_of(node) for node in nodes),
            fingerprint=fingerprint(device),
            without=tuple(sorted(config.without)),
        )
        call = PlanLine(
            wrapper=self._wrapper,
            plan=variable,
            inputs=inputs,
            symbols=plan.symbols,
            scalars=tuple(scalars),
            outputs=tuple(produced),
        )
        return plan, call

    def _scalars(self) -> dict[str, tuple[str, str]]:
        """Wrapper expression of every host scalar, with the name and dtype it has in the plan."""
        found: dict[str, tuple[str, str]] = {}
        for line in self._dispatches:
            for operand in line.operands:
                if operand.scalar is not None and operand.scalar[0] not in found:
                    found[operand.scalar[0]] = (f"scalar{len(found)}", operand.scalar[1])
        return found

    def _inputs(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for line in self._dispatches:
            for operand in line.operands:
                if operand.buffer is not None and operand.buffer != "errors":
                    root = self._root(operand.buffer)
                    if root not in self._storages:
                        names.setdefault(root)
        return tuple(names)

    def _step(
        self,
        line: DispatchLine,
        scalars: dict[str, tuple[str, str]],
        sizes: _Sizes,
        nodes: list[torch.fx.Node],
    ) -> Dispatch:
        def bind(operand: BoundOperand) -> Operand:
            if operand.buffer is not None:
                offset = sizes.size(self._offset(operand.buffer))
                return Operand(buffer=self._root(operand.buffer), offset=offset)
            if operand.scalar is not None:
                return Operand(scalar=scalars[operand.scalar[0]][0])
            if operand.assertion is not None:
                return Operand(assertion=operand.assertion)
            assert operand.value is not None
            return Operand(value=sizes.size(operand.value))

        x, y, z = (sizes.size(group) for group in line.groups)
        return Dispatch(
            kernel=line.kernel,
            groups=(x, y, z),
            operands=tuple(bind(operand) for operand in line.operands),
            reads=self._roots(line.reads),
            writes=self._roots(line.writes),
            origins=tuple(i for i, node in enumerate(nodes) if node in line.origins),
            read_bytes=sizes.size(line.cost.read_bytes),
            written_bytes=sizes.size(line.cost.written_bytes),
            flops=sizes.size(line.cost.flops),
        )

    def _roots(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._root(name) for name in names))


class _Sizes:
    """Sympy sizes as constants or Python expressions, with the symbols they need."""

    def __init__(self) -> None:
        self.symbols: dict[str, None] = {}

    def size(self, expression: Any) -> Size:
        expression = V.graph.sizevars.simplify(sympy.sympify(expression))
        if expression.is_Integer:
            return int(expression)
        for symbol in sorted(expression.free_symbols, key=str):
            self.symbols.setdefault(str(symbol))
        return V.graph.wrapper_code.codegen_python_sizevar(expression)

    def bytes_of(self, node: Any) -> Size:
        itemsize = node.get_dtype().itemsize
        layout = node.get_output_spec()
        return self.size(layout.storage_size() * itemsize)

    def output(self, name: str, node: Any) -> OutputBuffer:
        layout = node.get_output_spec()
        assert isinstance(layout, ir.Layout), type(layout)
        dtype: torch.dtype = node.get_dtype()
        return OutputBuffer(
            name=name,
            dtype=str(dtype).removeprefix("torch."),
            shape=tuple(self.size(s) for s in V.graph.get_allocation_size(node)),
            strides=tuple(self.size(s) for s in layout.stride),
        )
