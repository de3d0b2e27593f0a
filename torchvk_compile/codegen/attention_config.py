"""Which tile attention is computed with.

In: which pass, the widths of the heads and the device's profile. Out: an `AttentionTile` or an `AttentionPanel`, or
all that are worth measuring. Forbidden: emitting code.

All passes multiply twice: scores (rows x columns) from two operands, then the scores with a third one into rows of
accumulators. Rows are queries, except where the gradients of keys and values are accumulated: there they are keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

from torchvk_compile.codegen.gemm_config import runs_panels
from torchvk_compile.codegen.layout import reduction_subgroup
from torchvk_compile.codegen.tiles import Panel, Tile

Pass = Literal["forward", "query", "key_value"]
"""The output, the gradient of the query, the gradients of key and value."""


@dataclasses.dataclass(frozen=True)
class AttentionTile(Tile):
    """Rows of a workgroup and the scores it looks at together: ``thread_m x thread_n`` of them per invocation.

    An invocation has four rows, which are one vector in shared memory, and as many of the accumulators' vectors as make
    ``threads_n`` invocations cover a head. The numbers of invocations along rows and columns are powers of two.

    Attributes:
        subgroup: its size, if rows may be reduced within one, else 1.
        step: what of a head's width, or of the columns, is in shared memory at a time; at most ``4 * threads_n``, and
            divides `block_n`.
    """

    subgroup: int
    step: int = 16

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.step} at a time"

    def vectors(self, width: int) -> int:
        """Accumulator vectors of one invocation and row, for heads of this width."""
        return -(-width // (4 * self.threads_n))


@dataclasses.dataclass(frozen=True)
class AttentionPanel(Panel):
    """Rows of a subgroup, and the scores of each lane and row."""

    def vectors(self, width: int) -> int:
        """Accumulators of one lane and row, for heads of this width."""
        return -(-width // self.subgroup)


AttentionConfig = AttentionTile | AttentionPanel

# Scores and accumulators of an invocation, with what is on its way from memory, take 128 registers on RDNA for heads
# up to 64, up to 176 for wider ones (measured with Mesa 25.0).
_TILES: dict[Pass, tuple[tuple[int, int, int, int], ...]] = {
    # widest head, block_m, block_n, scores of an invocation and row
    "forward": ((64, 64, 64, 8), (128, 64, 64, 4), (256, 32, 128, 4)),
    "query": ((64, 64, 32, 4), (128, 64, 64, 4), (256, 32, 128, 4)),
    "key_value": ((64, 64, 32, 4), (128, 64, 64, 4), (256, 32, 128, 4)),
}
_MORE_TILES = ((64, 32, 64, 8), (64, 32, 64, 4), (64, 128, 64, 8))
"""Further tiles that are worth measuring, for all passes."""

_PANELS = ((16, 4), (8, 4), (16, 2), (8, 8), (4, 8), (4, 4))
"""Rows and columns of the panels that are worth measuring."""

_PANEL_REGISTERS = 128
"""Accumulators of a lane beyond which a panel has fewer rows."""


def choose_config(which: Pass, profile: Any, width: int) -> AttentionConfig:
    """The tile for a pass.

    Args:
        which: the pass.
        profile: the device's `DeviceProfile`.
        width: of the wider head, of query and key or of value.
    """
    if runs_panels(profile, torch.float32):
        panel = AttentionPanel(16, 4, profile.subgroup_size)
        while panel.rows > 4 and _accumulators(panel, which, width) > _PANEL_REGISTERS:
            panel = dataclasses.replace(panel, rows=panel.rows // 2)
        return panel
    return tile(which, width, reduction_subgroup(profile))


def alternatives(which: Pass, profile: Any, width: int) -> list[AttentionConfig]:
    """Everything that is worth measuring; arguments as for `choose_config`."""
    if runs_panels(profile, torch.float32):
        panels = [AttentionPanel(*size, profile.subgroup_size) for size in _PANELS]
        most = 2 * _PANEL_REGISTERS
        return [panel for panel in panels if _accumulators(panel, which, width) <= most]
    subgroup = reduction_subgroup(profile)
    sizes = dict.fromkeys([*_TILES["forward"], *_TILES[which], *_MORE_TILES])
    return [AttentionTile(m, n, 4, thread, subgroup) for w, m, n, thread in sizes if width <= w]


def _accumulators(panel: AttentionPanel, which: Pass, width: int) -> int:
    """Of a lane, for its rows."""
    return panel.rows * panel.vectors(width) * (2 if which == "key_value" else 1)


def tile(which: Pass, width: int, subgroup: int) -> AttentionTile:
    """The tile for a pass on a GPU with subgroups of this size (1: of no size that can be relied on)."""
    for widest, block_m, block_n, thread_n in _TILES[which]:
        if width <= widest:
            return AttentionTile(block_m, block_n, 4, thread_n, subgroup)
    raise AssertionError(f"no tile for heads of {width}")
