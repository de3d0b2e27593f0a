"""How the spatial dimensions of a convolution meet: which source element a tap reads for which output.

In: sizes, stride, padding and dilation of one spatial dimension. Out: an `Axis` that kernels index with.
Forbidden: emitting code, knowing tensors.

A convolution relates a wide side (the input of a plain convolution) and a narrow side (its output) by
``wide = narrow * stride - padding + tap * dilation``. The forward direction computes the narrow side from the wide one;
the adjoint direction (input gradients, transposed convolutions) computes the wide side from the narrow one. For the
latter the outputs fall into residue classes modulo the stride, the *phases*. Each phase is a forward convolution
of stride one with every ``stride / gcd(stride, dilation)``-th tap, so that no tap is multiplied in vain.
"""

from __future__ import annotations

import dataclasses
import math

import sympy
from torch.utils._sympy.functions import CeilDiv


@dataclasses.dataclass(frozen=True)
class Phase:
    """The taps that meet the outputs of one residue class.

    Tap j of the phase is tap ``first_tap + j * Axis.tap_step`` of the kernel.

    Attributes:
        taps: how many; may be zero.
        first_tap: the first of them.
        start: source index of the first tap at position zero.
    """

    taps: int
    first_tap: int
    start: int


@dataclasses.dataclass(frozen=True)
class Axis:
    """One spatial dimension.

    The outputs of phase r are at ``position * output_stride + r``, the source elements of its tap j at
    ``position * source_stride + start + j * source_step``; those outside of the source count as zero.

    Attributes:
        size: outputs.
        source: extent of the source.
        taps: taps of the kernel.
        source_stride: source elements between neighbouring positions.
        source_step: source elements between neighbouring taps of a phase; negative for the adjoint.
        tap_step: kernel taps between neighbouring taps of a phase.
        phases: one per residue class of outputs.
        overhangs: some tap may fall outside of the source.
    """

    size: sympy.Expr
    source: sympy.Expr
    taps: int
    source_stride: int
    source_step: int
    tap_step: int
    phases: tuple[Phase, ...]
    overhangs: bool

    @property
    def output_stride(self) -> int:
        """Outputs between neighbouring positions of a phase."""
        return len(self.phases)

    @property
    def positions(self) -> sympy.Expr:
        """Positions of the fullest phase."""
        return (
            CeilDiv(self.size, sympy.Integer(self.output_stride))
            if self.output_stride > 1
            else self.size
        )


def forward_axis(
    size: sympy.Expr, source: sympy.Expr, taps: int, stride: int, padding: int, dilation: int
) -> Axis:
    """The narrow side from the wide one: `size` outputs of a plain convolution over `source` elements."""
    return Axis(
        size=size,
        source=source,
        taps=taps,
        source_stride=stride,
        source_step=dilation,
        tap_step=1,
        phases=(Phase(taps, 0, -padding),),
        overhangs=padding > 0,
    )


def adjoint_axis(
    size: sympy.Expr, source: sympy.Expr, taps: int, stride: int, padding: int, dilation: int
) -> Axis:
    """The wide side from the narrow one: `size` outputs of a transposed convolution over `source` elements."""
    common = math.gcd(stride, dilation)
    tap_step = stride // common
    return Axis(
        size=size,
        source=source,
        taps=taps,
        source_stride=1,
        source_step=-(dilation // common),
        tap_step=tap_step,
        phases=tuple(
            _adjoint_phase(r + padding, taps, stride, dilation, tap_step) for r in range(stride)
        ),
        overhangs=True,
    )


def _adjoint_phase(offset: int, taps: int, stride: int, dilation: int, tap_step: int) -> Phase:
    """The phase whose outputs satisfy ``output + padding = position * stride + offset``."""
    for first in range(min(tap_step, taps)):
        if (offset - first * dilation) % stride == 0:
            count = -(-(taps - first) // tap_step)
            return Phase(count, first, (offset - first * dilation) // stride)
    return Phase(0, 0, 0)
