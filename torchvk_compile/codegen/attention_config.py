"""Which tile attention is computed with.

In: which pass, the widths of the heads and the device's profile. Out: an `AttentionTile` or an `AttentionPanel`.
Forbidden: emitting code.

All passes multiply twice: scores (rows x columns) from two operands, then the scores with a third one into rows of
accumulators. Rows are queries, except where the gradients of keys and values are accumulated: there they are keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

from torchvk_compile.codegen.gemm_config import runs_panels
from torchvk_compile.codegen.layout import reduction_subgroup

Pass = Literal["forward", "query", "key_value"]
"""The output, the gradient of the query, the gradients of key and value."""

THREAD_ROWS = 4
"""Rows of one invocation: they are one vector in shared memory."""


@dataclasses.dataclass(frozen=True)
class AttentionTile:
    """Rows per workgroup, operands in shared memory: for GPUs.

    An invocation has `THREAD_ROWS` rows of ``block_n / threads_n`` scores, and as many of the accumulators' vectors
    as make ``threads_n`` invocations cover a head.

    Attributes:
        threads_m, threads_n: invocations along the rows, and that share a row; powers of two.
        block_n: columns that are looked at together; a multiple of ``4 * threads_n``.
        subgroup: its size, if rows may be reduced within one, else 1.
        step: what of a head's width, or of the columns, is in shared memory at a time; at most ``4 * threads_n``, and
            divides `block_n`.
    """

    threads_m: int
    threads_n: int
    block_n: int
    subgroup: int
    step: int = 16

    @property
    def block_m(self) -> int:
        return self.threads_m * THREAD_ROWS

    @property
    def workgroup_size(self) -> int:
        return self.threads_m * self.threads_n

    def vectors(self, width: int) -> int:
        """Accumulator vectors of one invocation and row, for heads of this width."""
        return -(-width // (4 * self.threads_n))


@dataclasses.dataclass(frozen=True)
class AttentionPanel:
    """Rows per subgroup, operands in registers only: for drivers that run on a CPU.

    Attributes:
        rows: the same for all lanes.
        columns: scores per row and lane.
        subgroup: invocations per workgroup, all in one subgroup.
    """

    rows: int
    columns: int
    subgroup: int

    @property
    def block_m(self) -> int:
        return self.rows

    @property
    def block_n(self) -> int:
        return self.columns * self.subgroup

    @property
    def workgroup_size(self) -> int:
        return self.subgroup

    def vectors(self, width: int) -> int:
        """Accumulators of one lane and row, for heads of this width."""
        return -(-width // self.subgroup)


AttentionConfig = AttentionTile | AttentionPanel

# Scores and accumulators of an invocation, with what is on its way from memory, take 128 registers on RDNA for heads
# up to 64, up to 176 for wider ones (measured with Mesa 25.0).
_TILES: dict[Pass, tuple[tuple[int, int, int, int], ...]] = {
    # widest head, threads_m, threads_n, block_n
    "forward": ((64, 16, 8, 64), (128, 16, 16, 64), (256, 8, 32, 128)),
    "query": ((64, 16, 8, 32), (128, 16, 16, 64), (256, 8, 32, 128)),
    "key_value": ((64, 16, 8, 32), (128, 16, 16, 64), (256, 8, 32, 128)),
}
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
        vectors = -(-width // profile.subgroup_size) * (2 if which == "key_value" else 1)
        rows = 16
        while rows > 4 and rows * vectors > _PANEL_REGISTERS:
            rows //= 2
        return AttentionPanel(rows, 4, profile.subgroup_size)
    return tile(which, width, reduction_subgroup(profile))


def tile(which: Pass, width: int, subgroup: int) -> AttentionTile:
    """The tile for a pass on a GPU with subgroups of this size (1: of no size that can be relied on)."""
    for widest, threads_m, threads_n, block_n in _TILES[which]:
        if width <= widest:
            return AttentionTile(threads_m, threads_n, block_n, subgroup)
    raise AssertionError(f"no tile for heads of {width}")
