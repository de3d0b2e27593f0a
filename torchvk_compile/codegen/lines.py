"""Wrapper lines of ours: what Inductor's wrapper holds between allocations and frees.

In: kernel names, operands and buffer names. Out: lines that `segments` gathers into plans. Forbidden: Slang text.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.wrapper import WrapperLine

from torchvk_compile.codegen.costs import FREE, Cost

if TYPE_CHECKING:
    from torch._inductor.utils import IndentedBuffer


@dataclasses.dataclass(frozen=True)
class BoundOperand:
    """What a kernel argument is bound to, while sizes are still sympy expressions.

    Exactly one of the fields is set.

    Attributes:
        buffer: name of the buffer in the wrapper.
        value: size expression.
        scalar: Python expression in the wrapper whose value is a CPU scalar, with its dtype.
        assertion: message to report when the kernel finds its condition violated.
    """

    buffer: str | None = None
    value: sympy.Expr | None = None
    scalar: tuple[str, str] | None = None
    assertion: str | None = None


@dataclasses.dataclass
class DispatchLine(WrapperLine):
    """One kernel launch.

    Attributes:
        origins: FX nodes it computes, in any order.
        cost: what it moves and computes.
        linear_groups: number of its workgroups, where it may become a part of a combined dispatch.
    """

    wrapper: Any
    kernel: str
    groups: tuple[sympy.Expr, sympy.Expr, sympy.Expr]
    operands: tuple[BoundOperand, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    origins: frozenset[torch.fx.Node] = frozenset()
    cost: Cost = FREE
    linear_groups: sympy.Expr | None = None

    def codegen(self, code: IndentedBuffer) -> None:
        raise AssertionError("dispatches are written as part of a plan")


@dataclasses.dataclass
class PlanLine(WrapperLine):
    """Call of a plan: ``out0, out1 = plan((in0, in1), (s0,), (scalar,))``."""

    wrapper: Any
    plan: str
    inputs: tuple[str, ...]
    symbols: tuple[str, ...]
    scalars: tuple[str, ...]
    outputs: tuple[str, ...]

    def codegen(self, code: IndentedBuffer) -> None:
        arguments = [_tuple(self.inputs)]
        if self.symbols or self.scalars:
            arguments.append(_tuple(self.symbols))
        if self.scalars:
            arguments.append(_tuple(self.scalars))
        call = f"{self.plan}({', '.join(arguments)})"
        if self.outputs:
            call = f"{', '.join(self.outputs)}{',' if len(self.outputs) == 1 else ''} = {call}"
        code.writeline(call)


def _tuple(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
