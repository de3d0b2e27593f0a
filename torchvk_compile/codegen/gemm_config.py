"""Which tile a matrix product is computed with.

In: sizes (hints where they are dynamic), dtype and the device's profile. Out: a `GemmConfig`, or
all that are worth measuring. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from torchvk_compile import config
from torchvk_compile.codegen.cooperative import CooperativeConfig, Fragment
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

    def __str__(self) -> str:
        split = f", split {self.split_k}" if self.split_k > 1 else ""
        return f"{super().__str__()}, {self.block_k} of K{split}"

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

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.steps} of K"


@dataclasses.dataclass(frozen=True)
class RowConfig:
    """A reduction per output, as loop kernels do it: for products with a vector."""

    def __str__(self) -> str:
        return "a reduction per output"


ROWS = RowConfig()
GemmConfig = TileConfig | PanelConfig | CooperativeConfig

Split = TypeVar("Split", bound=TileConfig | CooperativeConfig)
"""A kind of tile whose K workgroups may share."""

# 8x8 outputs per invocation: 16 FMA per 16-byte read of shared memory, in 128 registers on RDNA.
LARGE = TileConfig(128, 128, 8, 8, 16)
HIGH = TileConfig(128, 64, 8, 8, 16)
BROAD = TileConfig(64, 128, 8, 8, 16)
MEDIUM = TileConfig(64, 64, 8, 8, 16)
SMALL = TileConfig(32, 32, 4, 4, 16)
TALL = TileConfig(64, 16, 4, 4, 32)
WIDE = TileConfig(16, 64, 4, 4, 32)

_COOPERATIVE = ((128, 256, 64), (128, 128, 64), (64, 64, 32))
"""Rows and columns of cooperative tiles, and those of a subgroup's square."""

_NVIDIA = 0x10DE
_LARGEST_SQUARE_ELSEWHERE = 32
"""RDNA3 holds fragments of operands twice: subgroups that own 64 x 64 outputs spill there (Mesa 25.0)."""

# FLOP/s of a compute unit that one workgroup reaches alone, and that many together reach: cooperative tiles.
_COOPERATIVE_RATES = {
    (128, 256): (2.0e12, 2.0e12),
    (128, 128): (1.1e12, 1.9e12),
    (64, 64): (0.5e12, 1.1e12),
}

# Share of a compute unit's peak that one workgroup reaches alone, and that many together reach: other tiles.
_RATES = {
    (128, 128): (0.62, 0.64),
    (128, 64): (0.46, 0.58),
    (64, 128): (0.46, 0.58),
    (64, 64): (0.26, 0.52),
    (32, 32): (0.16, 0.40),
    (64, 16): (0.13, 0.26),
    (16, 64): (0.13, 0.26),
}
_UNIT_FLOPS = 0.4e12
"""Peak of a compute unit, without matrix units."""

_UNIT_BYTES = 20e9
_PASS_SECONDS = 3e-6
"""What one more dispatch that waits for the one before it costs."""

_SPLIT_MARGIN = 1.15
"""A split K must promise to be faster by this: it takes memory and a second kernel."""

_PANELS = {
    (16, 4): 1.0,
    (8, 4): 1.02,
    (8, 2): 1.24,
    (4, 8): 1.33,
    (4, 4): 1.47,
    (2, 8): 2.5,
    (1, 8): 5.1,
}
"""Rows and columns of the panels that are worth measuring, with their time for a product of 256 x 256 x 256, relative
to the first one's (lavapipe, Mesa 25.0, eight lanes)."""

_HOPELESS = 4
"""How much slower than the fastest a tile may be by the model: more than it has been wrong by."""

_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
_SHORTEST_PART = 64
"""Elements of K that a workgroup should have at least."""


def choose_config(
    profile: Any,
    batch: int,
    m: int,
    n: int,
    k: int,
    accumulator: torch.dtype,
    cooperative: Sequence[CooperativeConfig] = (),
) -> GemmConfig:
    """The tile for ``batch`` products of (m, k) by (k, n).

    Args:
        profile: the device's `DeviceProfile`.
        batch, m, n, k: sizes, or hints of them.
        accumulator: dtype of the sums.
        cooperative: tiles of cooperative matrices that have these operands, see `cooperative_tiles`.
    """
    if runs_panels(profile, accumulator):
        return _panel(profile, batch * m * n * k)
    config = _all_tiles(profile, batch, m, n, k, accumulator, cooperative)[0]
    if isinstance(config, TileConfig):
        assert config.shared_bytes(accumulator.itemsize) <= SHARED_MEMORY
    return config


def alternatives(
    profile: Any,
    batch: int,
    m: int,
    n: int,
    k: int,
    accumulator: torch.dtype,
    cooperative: Sequence[CooperativeConfig] = (),
) -> list[GemmConfig | RowConfig]:
    """Everything that is worth measuring for a product, what the model expects most of first.

    Arguments as for `choose_config`.
    """
    found: list[GemmConfig | RowConfig] = [ROWS] if min(m, n) == 1 else []
    if runs_panels(profile, accumulator):
        lanes = profile.subgroup_size
        panels = [PanelConfig(*size, lanes, min(8, lanes)) for size in _PANELS]
        return [*found, *sorted(panels, key=lambda panel: _panel_cost(panel, m, n)), SMALL]
    tiles = _all_tiles(profile, batch, m, n, k, accumulator, cooperative)
    return found + best_of_each(tiles)


def cooperative_tiles(
    profile: Any, fragment: Fragment | None, products: int
) -> list[CooperativeConfig]:
    """The tiles of cooperative matrices that a device can run; none without a `fragment`."""
    if fragment is None:
        return []
    # Two parts of each operand take twice the memory.
    block_k = max(fragment.k, 32 if products == 1 else 16)
    tiles = [
        CooperativeConfig(fragment, m, n, square, square, block_k, products)
        for m, n, square in _COOPERATIVE
        if profile.vendor_id == _NVIDIA or square <= _LARGEST_SQUARE_ELSEWHERE
    ]
    return [tile for tile in tiles if tile.fits(profile)]


def best_of_each(ranked: Sequence[Split]) -> list[Split]:
    """The same tiles, each with its best split before any with another one."""
    first: dict[Split, Split] = {}
    for tile in ranked:
        first.setdefault(dataclasses.replace(tile, split_k=1), tile)
    return list(dict.fromkeys([*first.values(), *ranked]))


def _all_tiles(
    profile: Any,
    batch: int,
    m: int,
    n: int,
    k: int,
    accumulator: torch.dtype,
    cooperative: Sequence[CooperativeConfig],
) -> list[TileConfig | CooperativeConfig]:
    """All tiles and splits, the fastest by the model first."""
    # Wider accumulators and 32-bit integer products take more registers than 8x8 outputs leave.
    tiles: list[TileConfig | CooperativeConfig]
    tiles = [LARGE, HIGH, BROAD, MEDIUM, SMALL] if accumulator is torch.float32 else [SMALL]
    if n <= TALL.block_n:
        tiles.append(TALL)
    if m <= WIDE.block_m:
        tiles.append(WIDE)
    return by_model(profile, [*tiles, *cooperative], batch, m, n, k)


def by_model(
    profile: Any, tiles: Sequence[Split], batch: int, m: int, n: int, k: int
) -> list[Split]:
    """Tiles with every sensible split of K, the fastest by the model first, without the hopeless.

    Args:
        profile: the device's `DeviceProfile`.
        tiles: without a split.
        batch, m, n, k: sizes of the products, or hints of them.
    """
    units = compute_units(profile)
    splits = [
        dataclasses.replace(tile, split_k=parts)
        for tile in tiles
        for parts in _PARTS
        if parts == 1 or k >= parts * _SHORTEST_PART
    ]
    seconds = {split: _seconds(split, units, batch, m, n, k) for split in splits}
    limit = _HOPELESS * min(seconds.values())
    return sorted((split for split in splits if seconds[split] <= limit), key=seconds.__getitem__)


def _seconds(
    config: TileConfig | CooperativeConfig, units: int, batch: int, m: int, n: int, k: int
) -> float:
    """Estimated time of a product, fitted to measurements on 132 units at sizes from 512 to 4096.

    A compute unit works at the rate that its workgroups reach together; the unit with most of them
    decides. Splitting K adds a pass that reads the partial sums.
    """
    alone, together = _rates(config)
    per_unit = -(-config.tiles(batch, m, n) * config.split_k // units)
    flops = 2 * config.block_m * config.block_n * -(-k // config.split_k)
    seconds = per_unit * flops / min(together, per_unit * alone)
    if config.split_k > 1:
        moved = 4 * batch * m * n * (2 * config.split_k + 1)
        seconds = seconds * _SPLIT_MARGIN + _PASS_SECONDS + moved / (units * _UNIT_BYTES)
    return seconds


def _rates(config: TileConfig | CooperativeConfig) -> tuple[float, float]:
    """FLOP/s of a compute unit that one workgroup reaches alone, and that many together reach."""
    size = config.block_m, config.block_n
    if isinstance(config, CooperativeConfig):
        alone, together = _COOPERATIVE_RATES[size]
        return alone / config.products, together / config.products
    alone, together = _RATES[size]
    return alone * _UNIT_FLOPS, together * _UNIT_FLOPS


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


def _panel_cost(panel: PanelConfig, m: int, n: int) -> float:
    """Grows with a product's time: all outputs of all panels, at the panel's rate."""
    panels = -(-m // panel.block_m) * -(-n // panel.block_n)
    return panels * panel.block_m * panel.block_n * _PANELS[panel.rows, panel.columns]
