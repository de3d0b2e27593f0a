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

from torchvk_compile.codegen.cooperative import VECTOR, Fragment, fragment_of
from torchvk_compile.codegen.gemm_config import runs_panels
from torchvk_compile.codegen.layout import reduction_subgroup
from torchvk_compile.codegen.tiles import Panel, Tile

Pass = Literal["forward", "query", "key_value"]
"""The output, the gradient of the query, the gradients of key and value."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """What attention multiplies.

    Attributes:
        dtype: of all its tensors.
        width: of a head of query and key.
        value_width: of a head of the value.
        dropout: whether weights are dropped at random.
    """

    dtype: torch.dtype
    width: int
    value_width: int
    dropout: bool = False

    @property
    def widest(self) -> int:
        return max(self.width, self.value_width)


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


@dataclasses.dataclass(frozen=True)
class AttentionFragments:
    """Rows of each subgroup, which it multiplies with cooperative matrices, and columns it looks at together.

    Attributes:
        fragment: what subgroups multiply.
        subgroups: in a workgroup; they share the columns.
        rows: of a subgroup, a multiple of the fragment's.
        block_n: columns, a multiple of 4 and of the fragment's columns and depth.
        narrow: there are accumulators of the elements' type, which weights can be stored from.
    """

    fragment: Fragment
    subgroups: int
    rows: int
    block_n: int
    narrow: bool

    def __str__(self) -> str:
        return f"{self.subgroups} subgroups of {self.rows}x{self.block_n}"

    @property
    def block_m(self) -> int:
        return self.subgroups * self.rows

    @property
    def subgroup(self) -> int:
        return self.fragment.lanes

    @property
    def workgroup_size(self) -> int:
        return self.subgroups * self.subgroup

    @property
    def pitch(self) -> int:
        """Weights from one row to the next in shared memory: padded, for rows of a fragment in different banks."""
        return self.block_n + VECTOR

    def padded(self, width: int) -> int:
        """Elements of a head of this width that are multiplied, zeros at the end included."""
        step = max(self.fragment.n, self.fragment.k)
        return -(-width // step) * step

    def chunks(self, width: int) -> int:
        """The same in vectors of eight elements."""
        return self.padded(width) // VECTOR

    def fetches(self, width: int) -> int:
        """Vectors of eight elements that an invocation loads of a tile of columns."""
        return -(-self.block_n * self.chunks(width) // self.workgroup_size)

    def tile_memory(self, heads: Heads) -> int:
        """Vectors of eight elements that both tiles of columns take, or one of rows, each row with one of padding."""
        strides = [self.chunks(width) + 1 for width in (heads.width, heads.value_width)]
        return max(self.block_n * sum(strides), self.block_m * max(strides))

    def shared_bytes(self, which: Pass, heads: Heads) -> int:
        """Shared memory of one workgroup, in bytes."""
        m, n = self.fragment.m, self.fragment.n
        halves = VECTOR * self.tile_memory(heads) + self.block_m * self.pitch
        if heads.dropout:
            halves += self.block_m * self.block_n // 4
        floats = {
            "forward": self.subgroups * m * (n + 2),
            "query": 0,
            "key_value": 2 * self.block_n,
        }[which]
        return 2 * halves + 4 * (floats + m * n)

    def fits(self, which: Pass, profile: Any, heads: Heads) -> bool:
        """Whether the device has the memory and the invocations."""
        return (
            self.workgroup_size <= profile.max_workgroup_invocations
            and self.shared_bytes(which, heads) <= profile.shared_memory_bytes
        )


AttentionConfig = AttentionTile | AttentionPanel | AttentionFragments

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

_FRAGMENTS: dict[Pass, tuple[tuple[int, int, int, int], ...]] = {
    # widest head, subgroups, fragments in the rows of one, block_n
    "forward": ((64, 8, 1, 64), (64, 4, 1, 64), (64, 4, 2, 64), (128, 4, 1, 32)),
    "query": ((64, 8, 1, 64), (128, 4, 1, 32), (64, 8, 1, 32), (64, 4, 1, 64)),
    "key_value": ((128, 4, 1, 32), (64, 8, 1, 64), (64, 8, 1, 32), (64, 4, 1, 64)),
}
"""Sizes for cooperative matrices that are worth measuring, the fastest on an H200 first."""

_PANELS = ((16, 4), (8, 4), (16, 2), (8, 8), (4, 8), (4, 4))
"""Rows and columns of the panels that are worth measuring."""

_PANEL_REGISTERS = 128
"""Accumulators of a lane beyond which a panel has fewer rows."""


def choose_config(which: Pass, profile: Any, heads: Heads) -> AttentionConfig:
    """The tile for a pass.

    Args:
        which: the pass.
        profile: the device's `DeviceProfile`.
        heads: what is multiplied.
    """
    width = heads.widest
    if runs_panels(profile, torch.float32):
        panel = AttentionPanel(16, 4, profile.subgroup_size)
        while panel.rows > 4 and _accumulators(panel, which, width) > _PANEL_REGISTERS:
            panel = dataclasses.replace(panel, rows=panel.rows // 2)
        return panel
    for config in _fragments(which, profile, heads):
        return config
    return tile(which, width, reduction_subgroup(profile))


def alternatives(which: Pass, profile: Any, heads: Heads) -> list[AttentionConfig]:
    """Everything that is worth measuring; arguments as for `choose_config`."""
    width = heads.widest
    if runs_panels(profile, torch.float32):
        panels = [AttentionPanel(*size, profile.subgroup_size) for size in _PANELS]
        most = 2 * _PANEL_REGISTERS
        return [panel for panel in panels if _accumulators(panel, which, width) <= most]
    subgroup = reduction_subgroup(profile)
    sizes = dict.fromkeys([*_TILES["forward"], *_TILES[which], *_MORE_TILES])
    tiles = [AttentionTile(m, n, 4, thread, subgroup) for w, m, n, thread in sizes if width <= w]
    return [*_fragments(which, profile, heads), *tiles]


def _fragments(which: Pass, profile: Any, heads: Heads) -> list[AttentionFragments]:
    """What the device can run with cooperative matrices, the default first; nothing for heads narrower than those."""
    fragment = fragment_of(profile, heads.dtype)
    if fragment is None or min(heads.width, heads.value_width) < max(fragment.n, fragment.k):
        return []
    narrow = has_narrow_accumulators(profile, heads.dtype, fragment)
    configs = (
        AttentionFragments(fragment, subgroups, rows * fragment.m, block_n, narrow)
        for widest, subgroups, rows, block_n in _FRAGMENTS[which]
        if heads.widest <= widest and block_n % max(fragment.n, fragment.k) == 0
    )
    return [config for config in configs if config.fits(which, profile, heads)]


def has_narrow_accumulators(profile: Any, dtype: torch.dtype, fragment: Fragment) -> bool:
    """Whether the device sums fragments in their own type, too: it may only store what it can sum."""
    name = str(dtype).removeprefix("torch.")
    return any(
        (shape["m"], shape["n"], shape["c"]) == (fragment.m, fragment.n, name)
        for shape in profile.cooperative_matrix_shapes
    )


def _accumulators(panel: AttentionPanel, which: Pass, width: int) -> int:
    """Of a lane, for its rows."""
    return panel.rows * panel.vectors(width) * (2 if which == "key_value" else 1)


def tile(which: Pass, width: int, subgroup: int) -> AttentionTile:
    """The tile for a pass on a GPU with subgroups of this size (1: of no size that can be relied on)."""
    for widest, block_m, block_n, thread_n in _TILES[which]:
        if width <= widest:
            return AttentionTile(block_m, block_n, 4, thread_n, subgroup)
    raise AssertionError(f"no tile for heads of {width}")
