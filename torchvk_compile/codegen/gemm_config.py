"""Which tile a matrix product is computed with.

In: sizes (hints where they are dynamic), dtype and the device's profile. Out: a `TileConfig` or a
`PanelConfig`. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from torchvk_compile import config
from torchvk_compile.codegen.tiles import SHARED_MEMORY, Panel, Tile, compute_units


@dataclasses.dataclass(frozen=True)
class TileConfig(Tile):
    """How a workgroup computes its tile of a product.

    Attributes:
        block_k: how much of K is in shared memory at a time.
        split_k: workgroups that share one output tile, each with its part of K.
    """

    block_k: int
    split_k: int = 1

    def tiles(self, batch: int, m: int, n: int) -> int:
        """Workgroups without splitting K."""
        return batch * -(-m // self.block_m) * -(-n // self.block_n)

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of one workgroup, in bytes; `itemsize` is that of the accumulator."""
        return self.block_k * (self.block_m + self.block_n + 8) * itemsize


@dataclasses.dataclass(frozen=True)
class PanelConfig(Panel):
    """How a subgroup computes its panel of a product.

    Attributes:
        steps: of K whose elements of the first operand are fetched by one load, lane by lane; at
            most `subgroup`.
        split_k: see `TileConfig`; CPUs have too few units for it to pay.
    """

    steps: int
    split_k: int = 1


GemmConfig = TileConfig | PanelConfig

# 8x8 outputs per invocation: 16 FMA per 16-byte read of shared memory, in 128 registers on RDNA.
LARGE = TileConfig(128, 128, 8, 8, 16)
HIGH = TileConfig(128, 64, 8, 8, 16)
BROAD = TileConfig(64, 128, 8, 8, 16)
MEDIUM = TileConfig(64, 64, 8, 8, 16)
SMALL = TileConfig(32, 32, 4, 4, 16)
TALL = TileConfig(64, 16, 4, 4, 32)
WIDE = TileConfig(16, 64, 4, 4, 32)

# Share of a compute unit's peak that one workgroup reaches alone, and that many together reach.
_RATES = {
    LARGE: (0.62, 0.64),
    HIGH: (0.46, 0.58),
    BROAD: (0.46, 0.58),
    MEDIUM: (0.26, 0.52),
    SMALL: (0.16, 0.40),
    TALL: (0.13, 0.26),
    WIDE: (0.13, 0.26),
}
_UNIT_FLOPS = 0.4e12
_UNIT_BYTES = 20e9
_PASS_SECONDS = 3e-6
"""What one more dispatch that waits for the one before it costs."""

_SPLIT_MARGIN = 1.15
"""A split K must promise to be faster by this: it takes memory and a second kernel."""

_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
_SHORTEST_PART = 64
"""Elements of K that a workgroup should have at least."""


def choose_config(
    profile: Any, batch: int, m: int, n: int, k: int, accumulator: torch.dtype
) -> GemmConfig:
    """The tile for ``batch`` products of (m, k) by (k, n).

    Args:
        profile: the device's `DeviceProfile`.
        batch, m, n, k: sizes, or hints of them.
        accumulator: dtype of the sums.
    """
    if runs_panels(profile, accumulator):
        return _panel(profile, batch * m * n * k)
    units = compute_units(profile)
    # Wider accumulators and 32-bit integer products take more registers than 8x8 outputs leave.
    tiles = [LARGE, HIGH, BROAD, MEDIUM, SMALL] if accumulator is torch.float32 else [SMALL]
    if n <= TALL.block_n:
        tiles.append(TALL)
    if m <= WIDE.block_m:
        tiles.append(WIDE)
    candidates = [
        dataclasses.replace(tile, split_k=parts)
        for tile in tiles
        for parts in _PARTS
        if parts == 1 or k >= parts * _SHORTEST_PART
    ]
    config = min(candidates, key=lambda c: _seconds(c, units, batch, m, n, k))
    assert config.shared_bytes(accumulator.itemsize) <= SHARED_MEMORY
    return config


def _seconds(config: TileConfig, units: int, batch: int, m: int, n: int, k: int) -> float:
    """Estimated time of a product, fitted to measurements on 132 units at sizes from 512 to 4096.

    A compute unit works at the rate that its workgroups reach together; the unit with most of them
    decides. Splitting K adds a pass that reads the partial sums.
    """
    alone, together = _RATES[dataclasses.replace(config, split_k=1)]
    per_unit = -(-config.tiles(batch, m, n) * config.split_k // units)
    flops = 2 * config.block_m * config.block_n * -(-k // config.split_k)
    seconds = per_unit * flops / (_UNIT_FLOPS * min(together, per_unit * alone))
    if config.split_k > 1:
        moved = 4 * batch * m * n * (2 * config.split_k + 1)
        seconds = seconds * _SPLIT_MARGIN + _PASS_SECONDS + moved / (units * _UNIT_BYTES)
    return seconds


def runs_panels(profile: Any, accumulator: torch.dtype) -> bool:
    """Whether the device runs on a CPU and its subgroups can serve as vectors of `accumulator`."""
    if profile.device_type != "cpu" or not profile.subgroup_shuffle:
        return False
    if "subgroups" in config.without:
        return False
    if profile.min_subgroup_size != profile.max_subgroup_size:
        return False
    return accumulator is not torch.int64 or profile.subgroup_extended_types


def _panel(profile: Any, multiplications: int) -> PanelConfig:
    """Sixteen rows by four columns per lane: 15 to 20 GFLOP/s on one core, measured.

    Small products are given fewer outputs, which compile faster.
    """
    subgroup = profile.subgroup_size
    rows, columns = (8, 2) if multiplications <= 64**3 else (16, 4)
    return PanelConfig(rows, columns, subgroup, min(8, subgroup))
