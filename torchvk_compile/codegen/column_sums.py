"""Sums over the rows of a matrix that ride along with a kernel which walks these rows.

In: a reduction kernel whose rows stay in registers, and the first stage of sums over the same elements in the other
direction. Out: one kernel that reads the matrix once. Forbidden: sums of anything that the kernel itself writes.

The gradients of a normalisation are the case in point: the input's needs sums along each row, the weight's and the
bias's need sums over all rows, of the same two matrices. Inductor splits sums over many rows into stages; the first one
adds `k` neighbouring rows each, so a workgroup that walks `k` rows one after the other has the terms in its registers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.dependencies import MemoryDep
from torch._inductor.scheduler import BaseSchedulerNode, FusedSchedulerNode, SchedulerNode
from torch._inductor.utils import sympy_subs

from torchvk_compile.codegen import layout, resident
from torchvk_compile.codegen.lanes import starts_aligned

if TYPE_CHECKING:
    from torch._inductor.scheduler import Scheduler

_SLOT = sympy.Symbol("slot", integer=True, nonnegative=True)
"""Which of the sums over `k` rows the invocation is at work on; the name in the kernel."""


@dataclasses.dataclass(frozen=True)
class ColumnSum:
    """A sum of the kernel: the accumulators' name, the pointer to its results, whether vectors of them are aligned."""

    name: str
    pointer: str
    aligned: str


def partner(scheduler: Scheduler, node: BaseSchedulerNode) -> BaseSchedulerNode | None:
    """The node whose kernel may be one with that of `node`, if there is one to come that can be generated now.

    One of the two reduces rows and the other sums over rows, over the same elements and from the same tensors.
    """
    if not _is_loops(node):
        return None
    done = scheduler.completed_operations
    for other in scheduler.nodes:
        if other is node or not _is_loops(other) or other.get_operation_names() & done:
            continue
        if other.get_device() != node.get_device():
            continue
        if not other.ancestors <= done | other.get_operation_names():
            continue
        if any(sums_of_rows(*pair) for pair in ((node, other), (other, node))):
            return other
    return None


def _is_loops(node: BaseSchedulerNode) -> bool:
    return type(node) in (SchedulerNode, FusedSchedulerNode) and node.is_reduction()


def sums_of_rows(rows: BaseSchedulerNode, sums: BaseSchedulerNode) -> bool:
    """Whether `sums` adds neighbouring rows of what `rows` reduces along its rows."""
    (_, (count, length)), (_, (outputs, walk)) = rows.group, sums.group
    if not all(isinstance(n, (int, sympy.Integer)) for n in (count, length, outputs, walk)):
        return False
    if outputs * walk != count * length or outputs % length or walk < 2 or length < 2:
        return False
    expected = ([outputs // length, length], [walk])
    for node in sums.get_nodes():
        if node.node.get_reduction_type() != "sum" or node.node.get_dtype() is not torch.float32:
            return False
        if tuple(map(list, node.get_ranges())) != expected:
            return False
    whole = _whole_tensors(rows, count * length)
    return (
        bool(whole)
        and _whole_tensors(sums, count * length) <= whole
        and not (
            {dep.name for dep in sums.read_writes.reads}
            & {dep.name for dep in rows.read_writes.writes}
        )
    )


def _whole_tensors(node: BaseSchedulerNode, elements: int) -> set[str]:
    return {
        dep.name
        for dep in node.read_writes.reads
        if isinstance(dep, MemoryDep) and dep.get_numel() == elements
    }


class ColumnSumCodegen:
    """The part of `SlangKernel` that takes column sums along."""

    profile: Any
    layout: layout.WorkgroupLayout
    features: Any
    args: Any
    compute: IndentedBuffer
    index_dtype: str
    inside_reduction: bool
    _row_tree: Any
    _reduction_tree: Any

    column_sums: list[ColumnSum]
    expected_sums: int
    _summing: bool

    def take_column_sums(self, nodes: Sequence[SchedulerNode]) -> bool:
        """Generate the sums of `nodes` inside this kernel, whose own nodes have been generated.

        Returns:
            False, with nothing changed, if their terms are not what the kernel's invocations have in hand.
        """
        row, column = self._row_tree(), self._reduction_tree()
        slots, walk = nodes[0].get_ranges()[0][0], int(nodes[0].get_ranges()[1][0])
        if not self.layout.rounds or slots % self.layout.rows:
            return False
        if slots // self.layout.rows < layout.fewest_walking_groups(self.profile):
            return False
        if len(nodes) * self.layout.rounds * self.layout.lanes > resident.REGISTERS:
            return False
        (at_row,), (at_column,) = self.split_and_set_ranges(  # type: ignore[attr-defined]
            [[row.numel], [column.numel]]
        )
        place = [_SLOT, at_column], [at_row - walk * _SLOT]
        if not all(_is_in_hand(node, place, self._written_at(at_column)) for node in nodes):
            return False
        self.layout = dataclasses.replace(self.layout, walk=walk)
        if not self.inside_reduction:
            self.codegen_body()  # type: ignore[attr-defined]
            self.inside_reduction = True
        self._summing = True
        for node in nodes:
            with self.set_current_node(node):  # type: ignore[attr-defined]
                node._body(*place)
        self._summing = False
        return True

    def _written_at(self, at_column: sympy.Expr) -> sympy.Expr:
        return _SLOT * self._reduction_tree().numel + at_column

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        """Keep a row's result, or add to a column's."""
        if not self._summing:
            super().store_reduction(name, index, value)  # type: ignore[misc]
            return
        whole = self._reduction_tree().numel % self.layout.lanes == 0
        aligned = "ALIGNED" if whole and starts_aligned(name) else "false"
        total = ColumnSum(f"total{len(self.column_sums)}", self.args.output(name), aligned)
        self.column_sums.append(total)
        element = "round" if self.layout.lanes == 1 else f"round * {self.layout.lanes} + lane"
        self.compute.writeline(f"{total.name}[{element}] += {value};")


def _is_in_hand(
    node: SchedulerNode, place: tuple[Sequence[sympy.Expr], ...], written: sympy.Expr
) -> bool:
    """Whether a sum's terms depend on the place in the matrix alone, and its result is the slot's row."""
    body = node._body
    at = dict(zip(body.var_ranges, itertools.chain(*place), strict=True))
    (result,) = body.get_write_exprs()
    others = set(body.indexing_exprs.values()) - {result}
    in_hand = all(_SLOT not in sympy_subs(index, at).free_symbols for index in others)
    return in_hand and sympy.expand(sympy_subs(result, at) - written) == 0
