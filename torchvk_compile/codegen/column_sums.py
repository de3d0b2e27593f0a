"""Sums over the rows of a matrix that ride along with a kernel which walks these rows.

In: a reduction kernel whose rows stay in registers, and the first stage of sums over the same elements in the other
direction. Out: one kernel that reads the matrix once. Forbidden: choosing how sums are split (`layout.py` does).

The gradients of a normalisation are the case in point: the input's needs sums along each row, the weight's and the
bias's need sums over all rows, of the same two matrices. Inductor splits sums over many rows into stages; the first one
adds `k` neighbouring rows each, so a workgroup that walks `k` rows one after the other has the terms in its registers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.loop_body import MemoryUsageType
from torch._inductor.scheduler import BaseSchedulerNode, FusedSchedulerNode, SchedulerNode
from torch._inductor.utils import sympy_subs
from torch.utils._ordered_set import OrderedSet

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


def partners(
    scheduler: Scheduler, node: BaseSchedulerNode, generated: OrderedSet[str]
) -> tuple[BaseSchedulerNode, BaseSchedulerNode] | None:
    """`node` and one to come that can be generated now, if both may be one kernel: the one of rows, the one of sums.

    The first reduces rows and the second sums over rows, over the same elements and from the same tensors, or from what
    the first one makes of them.

    Args:
        scheduler: whose completed operations are there.
        node: about to be generated.
        generated: operations that are there, too.
    """
    if not _is_loops(node):
        return None
    done = scheduler.completed_operations | generated
    for other in scheduler.nodes:
        if other is node or not _is_loops(other) or other.get_operation_names() & done:
            continue
        if other.get_device() != node.get_device():
            continue
        there = done | other.get_operation_names()
        if _belong_together(node, other) and other.ancestors <= there | node.get_operation_names():
            return node, other
        if _belong_together(other, node) and other.ancestors <= there:
            return other, node
    return None


def _is_loops(node: BaseSchedulerNode) -> bool:
    return type(node) in (SchedulerNode, FusedSchedulerNode) and node.is_reduction()


def _belong_together(rows: BaseSchedulerNode, sums: BaseSchedulerNode) -> bool:
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
    whole = resident.whole_tensors(rows, count * length)
    made = {dep.name for dep in rows.read_writes.writes}
    return bool(whole) and resident.whole_tensors(sums, count * length) <= whole | made


class ColumnSumCodegen:
    """The part of `SlangKernel` that takes column sums along."""

    profile: Any
    layout: layout.WorkgroupLayout
    features: Any
    args: Any
    compute: IndentedBuffer
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
        length = column.numel
        made_here = {
            dep.name: dep.is_contiguous() and dep.get_numel() == row.numel * length
            for own in self.features.scheduler_nodes()
            for dep in own.read_writes.writes
        }
        matrix, result = at_row * length + at_column, _SLOT * length + at_column
        if not all(_is_in_hand(node, place, made_here, matrix, result) for node in nodes):
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
    node: SchedulerNode,
    place: tuple[Sequence[sympy.Expr], ...],
    made_here: Mapping[str, bool],
    matrix: sympy.Expr,
    result: sympy.Expr,
) -> bool:
    """Whether a sum's terms depend on the place in the matrix alone, and its result is the slot's row.

    Args:
        node: the sum.
        place: what its loops stand for in the kernel.
        made_here: buffers that the kernel makes, and whether they are matrices of its shape without gaps.
        matrix, result: the place in such a matrix, and in that of the results.
    """
    body = node._body
    at = dict(zip(body.var_ranges, itertools.chain(*place), strict=True))
    indices = {name: sympy_subs(index, at) for name, index in body.indexing_exprs.items()}
    (written,) = body.memory_usage[MemoryUsageType.STORE_REDUCTION]
    for name, index in indices.items():
        if name != written.index_name and _SLOT in index.free_symbols:
            return False
    for read in body.memory_usage[MemoryUsageType.LOAD]:
        own = made_here.get(read.buffer_name)
        if own is not None and not (own and _are_equal(indices[read.index_name], matrix)):
            return False
    return _are_equal(indices[written.index_name], result)


def _are_equal(one: sympy.Expr, other: sympy.Expr) -> bool:
    return sympy.expand(one - other) == 0
