"""What the lanes of one invocation touch when it handles several consecutive iterations.

In: an index expression and the iteration variable that the lanes step through. Out: whether the lanes read one
element, consecutive elements, or anything else, and from where. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
import itertools

import sympy
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing


@dataclasses.dataclass(frozen=True)
class LaneAccess:
    """How an index moves with the lane.

    Attributes:
        contiguous: lane k touches element ``base + k``; otherwise all lanes touch ``base``.
        aligned: ``base`` is always a multiple of the number of lanes.
    """

    contiguous: bool
    aligned: bool


def lane_access(index: sympy.Expr, variable: sympy.Symbol, lanes: int) -> LaneAccess | None:
    """Classify an access whose iteration variable takes ``lanes * k + lane``, lane = 0 … lanes - 1.

    Args:
        index: element offset, in terms of `variable` and of symbols that do not depend on the lane.
        variable: the iteration variable.
        lanes: iterations per invocation, a power of two.

    Returns:
        The access, or None where lanes touch neither one element nor consecutive ones.
    """
    fresh = itertools.count()
    stepping: list[sympy.Symbol] = []

    def replace_division(node: sympy.Expr) -> sympy.Expr | None:
        """A symbol that stands for the quotient or remainder, or None if it is neither fixed nor stepping."""
        base, divisor = node.args[0], node.args[1]
        if base != variable or not divisor.is_Integer:
            return None
        name = f"_lane_{next(fresh)}"
        if int(divisor) % lanes == 0:
            return sympy.Symbol(name, integer=True, nonnegative=True)
        if isinstance(node, ModularIndexing) and divisor == 1 and _divides(lanes, node.args[2]):
            symbol = sympy.Symbol(name, integer=True, nonnegative=True)
            stepping.append(symbol)
            return symbol
        return None

    replacements = {}
    for node in index.atoms(FloorDiv, ModularIndexing):
        if variable not in node.free_symbols:
            replacements[node] = sympy.Symbol(f"_fixed_{next(fresh)}", integer=True)
            continue
        symbol = replace_division(node)
        if symbol is None:
            return None
        replacements[node] = symbol
    linear = sympy.expand(index.xreplace(replacements))

    slope = sympy.Integer(0)
    remainder = linear
    for symbol in (variable, *stepping):
        coefficient = linear.coeff(symbol)
        if not coefficient.is_Integer:
            return None
        slope += coefficient
        remainder = sympy.expand(remainder - coefficient * symbol)
    if {variable, *stepping} & remainder.free_symbols:
        return None
    if slope == 0:
        # Stepping parts that cancel still start at multiples of the lane count.
        return LaneAccess(contiguous=False, aligned=True)
    if slope != 1:
        return None
    terms = sympy.Add.make_args(remainder)
    return LaneAccess(
        contiguous=True, aligned=all(_divides(lanes, term.as_coeff_Mul()[0]) for term in terms)
    )


def _divides(lanes: int, number: sympy.Expr) -> bool:
    return bool(number.is_Integer) and int(number) % lanes == 0


def starts_aligned(name: str) -> bool:
    """False for a buffer that is a part of another one, as in a concatenation, unless it starts at 16 bytes."""
    buffer = V.graph.try_get_buffer(name)
    layout_of = buffer.maybe_get_layout() if buffer is not None else None
    if not isinstance(layout_of, ir.NonOwningLayout):
        return True
    offset = layout_of.view.get_layout().offset * layout_of.dtype.itemsize
    return V.graph.sizevars.statically_known_multiple_of(offset, 16)
