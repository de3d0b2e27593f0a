"""Which tile a matrix product is computed with.

In: sizes (hints where they are dynamic), dtype and the device's profile. Out: a `GemmConfig`, or
all that are worth measuring. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from torchvk_compile import config
from torchvk_compile.codegen.cooperative import CooperativeConfig, Fragment
from torchvk_compile.codegen.tiles import (
    AMD,
    NVIDIA,
    SHARED_MEMORY,
    Panel,
    Tile,
    compute_units,
    lanes_per_unit,
)


@dataclasses.dataclass(frozen=True)
class TileConfig(Tile):
    """How a workgroup computes its tile of a product.

    Attributes:
        block_k: how much of K is in shared memory at a time.
        split_k: workgroups that share one output tile, each with its part of K.
        slices: parts of every step of K that a workgroup multiplies side by side, each with
            invocations of its own for the whole tile; a power of two. More of them hide latency
            where tiles are few.
        stages: steps of K that shared memory holds at a time; with two of them a step needs one
            barrier. Convolutions have one.
    """

    block_k: int
    split_k: int = 1
    slices: int = 1
    stages: int = 1

    def __post_init__(self) -> None:
        for block in (self.block_m, self.block_n):
            if block * self.block_k // 4 % self.workgroup_size:
                raise ValueError(f"{self}: its invocations cannot share a step's vectors evenly")

    def __str__(self) -> str:
        split = f", split {self.split_k}" if self.split_k > 1 else ""
        slices = f" in {self.slices} slices" if self.slices > 1 else ""
        stages = f" in {self.stages} stages" if self.stages > 1 else ""
        return f"{super().__str__()}, {self.block_k} of K{slices}{stages}{split}"

    @property
    def workgroup_size(self) -> int:
        return self.threads_m * self.threads_n * self.slices

    def tiles(self, batch: int, m: int, n: int) -> int:
        """Workgroups without splitting K."""
        return batch * -(-m // self.block_m) * -(-n // self.block_n)

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of one workgroup, in bytes; `itemsize` is that of the accumulator."""
        return self.shared_vectors * 4 * itemsize

    @property
    def shared_vectors(self) -> int:
        """Vectors of four elements in shared memory: steps of both operands, or sums that slices hand over."""
        operands = self.stages * self.block_k * (self.block_m // 4 + self.block_n // 4 + 2)
        return max(operands, self.block_m * self.block_n // 4 * (self.slices // 2))


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
SLICED = TileConfig(64, 64, 8, 8, 16, slices=2, stages=2)
SMALL = TileConfig(32, 32, 4, 4, 16)
SMALL_SLICED = TileConfig(32, 32, 4, 4, 16, slices=2)
FLOAT_TILES = (LARGE, HIGH, BROAD, MEDIUM, SLICED, SMALL, SMALL_SLICED)
TALL = TileConfig(64, 16, 4, 4, 32)
WIDE = TileConfig(16, 64, 4, 4, 32)

_COOPERATIVE = ((128, 256, 64), (128, 128, 64), (64, 64, 32))
"""Rows and columns of cooperative tiles, and those of a subgroup's square."""

_LARGEST_SQUARE_ELSEWHERE = 32
"""RDNA3 holds fragments of operands twice: subgroups that own 64 x 64 outputs spill there (Mesa 25.0)."""

# FLOP/s of a compute unit that one workgroup reaches alone, and that many together reach: cooperative tiles.
# Measured on 132 units for 128 x 256, and for 128 x 128 together; the others are in proportion to the tiles below.
_COOPERATIVE_RATES = {
    (128, 256): (2.1e12, 2.1e12),
    (128, 128): (1.1e12, 1.9e12),
    (64, 64): (0.5e12, 1.1e12),
}

# Share of a compute unit's peak that a tile's products reach where enough invocations hide each other's latency.
# Fitted, with the constants below, to 143 times on an H200: square products of 512 to 4096, those of GPT-2 (2048
# tokens, forward and backward), and convolutions of 64 to 256 channels. The model is off by 7 % in the median, by 40 %
# at most; what it chooses is 1 % slower than the best tile in the mean, 11 % at most.
_RATES = {
    (128, 128): 0.72,
    (64, 128): 0.735,
    (128, 64): 0.70,
    (64, 64): 0.58,
    (32, 32): 0.435,
    (64, 16): 0.26,
    (16, 64): 0.26,
}
_STAGED_RATE, _STAGED_REGISTERS = 1.08, 40
"""Of the rate, and beyond the registers, with one stage: one barrier a step, not two. The registers are inferred: a
unit of the H200 behaves as if it held two workgroups of such a tile, not three."""

_NARROW_RATE = 0.94
"""Of the rate, for tiles below 128 x 128 where caches are small. They take 21 operations a byte; the memory of an RX
5600 XT feeds 25 (an estimate: no such card was measured)."""

_HIDING = 0.93
"""Invocations per lane of a unit with which a tile reaches 1 - 1/e of its rate."""

_UNIT_REGISTERS = 65536
"""Registers of 32 bits that a unit has for all invocations, on RDNA and on NVIDIA's cards."""

_CLOCK = 1.9e9
_UNIT_BYTES = 20e9
_START_SECONDS = 0.9e-6
"""What a dispatch takes beside its products: the first loads, the last stores."""

_SLICE_SECONDS = 1e-6
"""What it takes longer where slices add up at the end."""

_PASS_SECONDS = 5.6e-6
"""What one more dispatch that waits for the one before it costs."""

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
_ROUNDS = (1, 2, 3, 4, 6)
"""Workgroups per unit that a split of K may aim at."""

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
        if profile.vendor_id == NVIDIA or square <= _LARGEST_SQUARE_ELSEWHERE
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
    tiles = [*FLOAT_TILES] if accumulator is torch.float32 else [SMALL]
    if n <= TALL.block_n:
        tiles.append(TALL)
    if m <= WIDE.block_m:
        tiles.append(WIDE)
    candidates = [*tiles, *cooperative]
    return by_model(profile, candidates, lambda tile: tile.tiles(batch, m, n), batch * m * n, k)


def by_model(
    profile: Any,
    tiles: Sequence[Split],
    count: Callable[[Split], int],
    outputs: int,
    k: int,
) -> list[Split]:
    """Tiles with every sensible split of K, the fastest by the model first, without the hopeless.

    Args:
        profile: the device's `DeviceProfile`.
        tiles: without a split.
        count: how many of a tile the products take.
        outputs: elements of all products.
        k: length of their sums.
    """
    splits = [
        dataclasses.replace(tile, split_k=parts)
        for tile in tiles
        for parts in _parts(profile, count(tile))
        if parts == 1 or k >= parts * _SHORTEST_PART
    ]
    seconds = {split: seconds_of(split, profile, count(split), outputs, k) for split in splits}
    limit = _HOPELESS * min(seconds.values())
    return sorted((split for split in splits if seconds[split] <= limit), key=seconds.__getitem__)


def _registers(profile: Any, config: TileConfig) -> int:
    """Registers of an invocation: sums, operands, the vectors of the next step, and what compilers keep besides.

    The last of these are from RADV's statistics for Navi 10, and from NVIDIA's driver, which reports
    145 registers for a tile of 64 x 128 (580.159).
    """
    sums = config.thread_m * config.thread_n
    operands = config.thread_m + config.thread_n
    following = (config.block_m + config.block_n) * config.block_k // config.workgroup_size
    if profile.vendor_id == AMD:
        return sums + operands + following + 32
    return sums + operands + following + 41 + (_STAGED_REGISTERS if config.stages > 1 else 0)


def _parts(profile: Any, tiles: int) -> list[int]:
    """Splits of K: some of any size, and those that give every unit equally many workgroups."""
    units = compute_units(profile)
    even = [rounds * units // max(tiles, 1) for rounds in _ROUNDS]
    return sorted({*_PARTS, *(parts for parts in even if 1 < parts <= _PARTS[-1])})


def seconds_of(
    config: TileConfig | CooperativeConfig, profile: Any, tiles: int, outputs: int, k: int
) -> float:
    """Estimated time of products that take so many `tiles`.

    The unit with most workgroups decides. Splitting K adds a pass that reads the partial sums.
    """
    workgroups = -(-tiles * config.split_k // compute_units(profile))
    flops = 2 * config.block_m * config.block_n * -(-k // config.split_k)
    if isinstance(config, CooperativeConfig):
        alone, most = _COOPERATIVE_RATES[config.block_m, config.block_n]
        seconds = workgroups * flops * config.products / min(most, workgroups * alone)
    else:
        seconds = _seconds_of_unit(config, profile, workgroups, flops)
    seconds += _START_SECONDS
    if config.split_k > 1:
        moved = 4 * outputs * (2 * config.split_k + 1)
        seconds += pass_seconds(profile, moved)
    return seconds


def _seconds_of_unit(config: TileConfig, profile: Any, workgroups: int, flops: int) -> float:
    """Time a unit takes for `workgroups` of so many `flops` each.

    It holds as many at a time as its registers allow, and the rate of those grows with their
    invocations.
    """
    lanes = lanes_per_unit(profile)
    peak = 2 * lanes * _CLOCK * _RATES[config.block_m, config.block_n]
    if config.stages > 1:
        peak *= _STAGED_RATE
    if profile.vendor_id != NVIDIA and min(config.block_m, config.block_n) < LARGE.block_m:
        peak *= _NARROW_RATE

    def seconds_with(held: int) -> float:
        hidden = 1 - math.exp(-held * config.workgroup_size / (_HIDING * lanes))
        return held * flops / (peak * hidden)

    together = max(_UNIT_REGISTERS // _registers(profile, config) // config.workgroup_size, 1)
    rounds, rest = divmod(workgroups, together)
    seconds = rounds * seconds_with(together) + (seconds_with(rest) if rest else 0.0)
    return seconds + (_SLICE_SECONDS if config.slices > 1 else 0.0)


def pass_seconds(profile: Any, moved: int) -> float:
    """Estimated time of one more kernel, which moves so many bytes and waits for the one before it."""
    return _PASS_SECONDS + moved / (compute_units(profile) * _UNIT_BYTES)


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
