"""Square tiles for kernels whose tensors disagree about the fastest axis: transposes, permutations, NCHW beside NHWC.

In: the index expressions of a pointwise kernel and the axes they are made of. Out: a `Tile`, if one pays, and which
accesses cross it. Forbidden: emitting code.

A kernel walks along its own fastest axis; an operand that is consecutive along another axis would be read with a
stride. A workgroup therefore takes a square of both axes, reads such operands along their axis into shared memory, and
takes its elements from there. Rows of the square in shared memory are one element longer, so that a column of it lies
in different banks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from torchvk_compile.codegen.layout import LANES, WORKGROUP_SIZE

_SHORTEST = 16
"""Elements along either axis, below which a square would be mostly empty."""

_FULL = 0.6
"""Share of the squares' elements that have to exist."""

MOST_STAGED = 4
"""Operands in shared memory at once: 17 KiB of float32 at most, half of what every device has."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """How a flat iteration number falls apart: ``x + fast * m + stride * y + stride * length * o``.

    Attributes:
        fast: elements along the kernel's fastest axis, x.
        stride: iterations between neighbours along the other axis, y; a multiple of `fast`.
        length: elements along y.
        numel: iterations in all.
        lanes: consecutive elements an invocation handles.
    """

    fast: int
    stride: int
    length: int
    numel: int
    lanes: int

    @property
    def side(self) -> int:
        """Elements of a square along each axis: one for every lane of the workgroup."""
        return int((WORKGROUP_SIZE * self.lanes) ** 0.5)

    @property
    def row(self) -> int:
        """Distance of the square's rows in shared memory."""
        return self.side + 1

    @property
    def across(self) -> int:
        """Squares side by side along x."""
        return -(-self.fast // self.side)

    @property
    def down(self) -> int:
        """Squares along y."""
        return -(-self.length // self.side)

    @property
    def between(self) -> int:
        """Values of m."""
        return self.stride // self.fast

    @property
    def groups(self) -> int:
        """Workgroups in all."""
        return self.across * self.down * (self.numel // (self.fast * self.length))

    @property
    def filled(self) -> float:
        """Share of the squares' elements that exist."""
        return self.fast * self.length / (self.across * self.down * self.side**2)


@dataclasses.dataclass(frozen=True)
class Crossing:
    """An access that is consecutive along y.

    Attributes:
        fast, stride, length: of the tile it asks for.
        aligned: it starts at a multiple of `LANES` elements wherever y does.
    """

    fast: int
    stride: int
    length: int
    aligned: bool


def pay(profile: Any) -> bool:
    """Whether squares are worth a barrier; reads with a stride cost a software rasteriser less than that."""
    return profile.device_type != "cpu"


def choose_tile(
    indices: Iterable[sympy.Expr], axes: Mapping[sympy.Symbol, Any], numel: sympy.Expr
) -> Tile | None:
    """The tile that most crossing accesses ask for, or None if there is none or it would be too empty.

    Args:
        indices: element offsets in terms of `axes`.
        axes: Inductor's iteration ranges by symbol; each has a `divisor` and a `length`.
        numel: iterations of the kernel.
    """
    if not isinstance(numel, (int, sympy.Integer)):
        return None
    wanted: dict[Tile, int] = {}
    for index in indices:
        crossing = crossing_of(index, axes)
        if crossing is not None and min(crossing.fast, crossing.length) >= _SHORTEST:
            lanes = LANES if crossing.fast % LANES == 0 else 1
            tile = Tile(crossing.fast, crossing.stride, crossing.length, int(numel), lanes)
            if tile.filled >= _FULL:
                wanted[tile] = wanted.get(tile, 0) + 1
    return max(wanted, key=lambda tile: wanted[tile], default=None)


def crossing_of(index: sympy.Expr, axes: Mapping[sympy.Symbol, Any]) -> Crossing | None:
    """What tile an access needs; None where it is not consecutive along another axis than the fastest.

    Args:
        index, axes: as for `choose_tile`.
    """
    symbols = sorted(index.free_symbols, key=str)
    if not symbols or not all(symbol in axes for symbol in symbols):
        return None
    strides = {symbol: index.coeff(symbol) for symbol in symbols}
    offset = sympy.expand(index - sum(stride * symbol for symbol, stride in strides.items()))
    whole = [offset, *strides.values(), *(axes[s].divisor for s in symbols)]
    whole += [axes[s].length for s in symbols]
    if not all(isinstance(number, (int, sympy.Integer)) for number in whole):
        return None
    fast = [s for s in symbols if axes[s].divisor == 1 and strides[s] > 1]
    along = [s for s in symbols if axes[s].divisor > 1 and strides[s] == 1]
    if len(fast) != 1 or len(along) != 1:
        return None
    x, y = axes[fast[0]], axes[along[0]]
    if y.divisor % x.length != 0:
        return None
    others = [offset, *(stride for symbol, stride in strides.items() if symbol is not along[0])]
    aligned = all(number % LANES == 0 for number in others)
    return Crossing(int(x.length), int(y.divisor), int(y.length), aligned)
