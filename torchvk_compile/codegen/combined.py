"""Combined dispatches: kernels that do not need each other's results share one launch.

In: the dispatches of a plan in order, and which names are one buffer. Out: fewer dispatches, in an order that every
result and every overwritten buffer allows. Forbidden: changing what a kernel computes.

An optimizer's update is the case in point: the same few operations on every parameter, each in a kernel of its own,
none long enough to hide a launch. A combined kernel divides its workgroups among its parts. Every workgroup finds its
part by a binary search in the argument table, and takes the part's pointers and sizes from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import sympy
from torch._inductor.virtualized import V

from torchvk_compile.codegen.costs import FREE
from torchvk_compile.codegen.device_profile import current_profile
from torchvk_compile.codegen.grid import grid, is_folded
from torchvk_compile.codegen.lines import BoundOperand, DispatchLine
from torchvk_compile.codegen.templates import KERNEL_NAME, render
from torchvk_compile.plan.graph_plan import KernelArgument, KernelSpec

if TYPE_CHECKING:
    from torchvk_compile.codegen.wrapper import DefinedKernel, KernelPart, PlanWrapperCodegen

_SMALL_GROUPS = 256
"""A kernel of at most this many workgroups (a quarter of a million elements) costs about as much as its launch."""

_DIFFERENT_KERNELS = 8
"""A combined kernel needs the registers of its greediest part; so many different ones may meet in one."""

_LONGEST_NAME = 60

_TABLE_BYTES = 1 << 16
"""Longest argument struct, where the device allows it (limit maxUniformBufferRange, at least 16 KiB)."""


def combine(
    wrapper: PlanWrapperCodegen, dispatches: Sequence[DispatchLine], root: Callable[[str], str]
) -> list[DispatchLine]:
    """Combine dispatches.

    Args:
        wrapper: knows the kernels, and gets the combined ones.
        dispatches: in order.
        root: the buffer in whose memory a name lies.

    Returns:
        Dispatches in order. Launches of one kernel are combined at any size; launches of others join them where they
        are small. A dispatch moves forward past others only if it is small, so that large buffers are not
        made long before they are used.
    """
    slots: list[_Slot] = []
    last_written: dict[str, int] = {}
    last_touched: dict[str, int] = {}
    table_bytes = min(_TABLE_BYTES, current_profile().max_uniform_bytes)
    for line in dispatches:
        reads, writes = set(map(root, line.reads)), set(map(root, line.writes))
        waits_for = [last_written.get(name, -1) for name in reads]
        waits_for += [last_touched.get(name, -1) for name in writes]
        member = _Member(line, wrapper.slang_kernels[line.kernel])
        earliest = max(waits_for, default=-1) + 1
        if not member.is_small:
            earliest = max(earliest, len(slots) - 1)
        for position in range(earliest, len(slots)):
            if slots[position].takes(member, table_bytes):
                break
        else:
            position = len(slots)
            slots.append(_Slot())
        slots[position].members.append(member)
        for name in writes:
            last_written[name] = max(last_written.get(name, -1), position)
        for name in reads | writes:
            last_touched[name] = max(last_touched.get(name, -1), position)
    return [slot.dispatch(wrapper) for slot in slots]


@dataclasses.dataclass(frozen=True)
class _Member:
    """A dispatch and its kernel."""

    line: DispatchLine
    kernel: DefinedKernel

    @property
    def can_be_combined(self) -> bool:
        return self.kernel.part is not None and self.line.linear_groups is not None

    @property
    def is_small(self) -> bool:
        if self.line.linear_groups is None:
            return False
        hint = V.graph.sizevars.optimization_hint(self.line.linear_groups, fallback=1 << 20)
        return hint <= _SMALL_GROUPS

    @property
    def part(self) -> KernelPart:
        assert self.kernel.part is not None
        return self.kernel.part

    @property
    def arguments(self) -> tuple[KernelArgument, ...]:
        """The members of the part's struct."""
        return (
            *self.kernel.spec.arguments,
            KernelArgument("first_group", "u32", "uint"),
            KernelArgument("end_group", "u32", "uint"),
        )

    @property
    def table_bytes(self) -> int:
        spec = self.kernel.spec
        return dataclasses.replace(spec, arguments=self.arguments).argument_bytes


class _Slot:
    """Dispatches that become one."""

    def __init__(self) -> None:
        self.members: list[_Member] = []

    def takes(self, member: _Member, table_bytes: int) -> bool:
        """Whether a dispatch that depends on none of the members may join them."""
        first = self.members[0]
        if not (member.can_be_combined and first.can_be_combined):
            return False
        one, other = first.kernel.spec, member.kernel.spec
        if (one.workgroup_size, one.subgroup_size) != (other.workgroup_size, other.subgroup_size):
            return False
        entered = [*self.members, member]
        if len({m.line.kernel for m in entered}) > _DIFFERENT_KERNELS:
            return False
        if len({m.line.kernel for m in entered if not m.is_small}) > 1:
            return False
        return sum(m.table_bytes for m in entered) <= table_bytes

    def dispatch(self, wrapper: PlanWrapperCodegen) -> DispatchLine:
        """The members' dispatch; its kernel is added to the wrapper."""
        if len(self.members) == 1:
            return self.members[0].line
        by_kernel: dict[str, list[_Member]] = {}
        for member in self.members:
            by_kernel.setdefault(member.line.kernel, []).append(member)
        members = [member for same in by_kernel.values() for member in same]
        operands: list[BoundOperand] = []
        total = sympy.Integer(0)
        for member in members:
            assert member.line.linear_groups is not None
            first, total = total, total + member.line.linear_groups
            ends = (BoundOperand(value=first), BoundOperand(value=total))
            operands += [*member.line.operands, *ends]
        lines = [member.line for member in members]
        return DispatchLine(
            wrapper=wrapper,
            kernel=_define(wrapper, list(by_kernel.values()), folded=is_folded(total)),
            groups=grid(total),
            operands=tuple(operands),
            reads=tuple(dict.fromkeys(name for line in lines for name in line.reads)),
            writes=tuple(dict.fromkeys(name for line in lines for name in line.writes)),
            origins=frozenset().union(*(line.origins for line in lines)),
            cost=sum((line.cost for line in lines), FREE),
        )


def _define(wrapper: PlanWrapperCodegen, groups: list[list[_Member]], *, folded: bool) -> str:
    """Add the kernel that runs these members, one row for each kernel, or find the one that is there.

    Returns:
        The entry point's name.
    """
    from torchvk_compile.codegen.wrapper import DefinedKernel

    first = groups[0][0].kernel.spec
    source = render(
        "combined.slang.j2",
        kernel=KERNEL_NAME,
        workgroup_size=first.workgroup_size,
        folded=folded,
        groups=[
            {
                "function": members[0].part.function,
                "index_type": members[0].part.index_type,
                "count": len(members),
            }
            for members in groups
        ],
    )
    if source in wrapper.src_to_kernel:
        return wrapper.src_to_kernel[source]
    name = f"combined_{wrapper.next_kernel_suffix()}_{first.name}"[:_LONGEST_NAME].rstrip("_")
    wrapper.src_to_kernel[source] = name
    kernels = [members[0].kernel for members in groups]
    wrapper.define_slang_kernel(
        DefinedKernel(
            spec=KernelSpec(
                name=name,
                workgroup_size=first.workgroup_size,
                subgroup_size=first.subgroup_size,
                arguments=_struct(groups),
                origin="; ".join(kernel.spec.origin for kernel in kernels),
            ),
            source=source.replace(KERNEL_NAME, name),
            modules=frozenset().union(*(kernel.modules for kernel in kernels)),
            calls=tuple(members[0].part for members in groups),
        )
    )
    return name


def _struct(groups: list[list[_Member]]) -> tuple[KernelArgument, ...]:
    """The combined argument struct: an array for each row of members, a struct for each member."""
    arguments = []
    for row, members in enumerate(groups):
        for position, member in enumerate(members):
            for i, argument in enumerate(member.arguments):
                name = f"parts{row}[{position}].{argument.name}"
                arguments.append(dataclasses.replace(argument, name=name, starts_struct=i == 0))
    return tuple(arguments)
