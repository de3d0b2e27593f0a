"""Which tile a convolution is computed with.

In: sizes (hints where they are dynamic), dtype and the device's profile. Out: a `TileConfig`, or all
that are worth measuring. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from torchvk_compile.codegen.gemm_config import (
    BROAD,
    HIGH,
    LARGE,
    MEDIUM,
    SMALL,
    SMALL_SLICED,
    TileConfig,
    best_of_each,
    by_model,
    pass_seconds,
    seconds_of,
)
from torchvk_compile.codegen.layout import LANES, WorkgroupLayout
from torchvk_compile.codegen.tiles import SHARED_MEMORY

_MOST_PARTS = 64
"""Partial sums of an output that the second pass of CPU drivers adds up, at most."""

_DIRECT_TILES = 256
_LEAST_DIRECT_STEPS = 512
"""Invocations that keep a CPU driver busy, and steps of K that each should have left."""

MOST_PADDING = 4 / 3
"""How much longer a dimension may become by rounding the channels of every tap up to whole steps or tiles."""

_GATHERED_SHARE = 0.1
"""Of the instructions of a tile's main loop on Navi 10, those that gather weights: 1143 with them, 1030 without."""

# On a CPU driver an invocation computes its outputs alone: shared memory is slow there and unrolled tiles take long to
# compile.
DIRECT = TileConfig(8, 4, 8, 4, 1)
_DIRECT_ROWS = (16, 8, 4, 2)
"""Outputs of an invocation, four times over, that are worth measuring."""

SLICED = TileConfig(64, 64, 8, 8, 16, slices=2)
FLAT = TileConfig(16, 64, 4, 4, 16)
SLIM = TileConfig(64, 16, 4, 4, 16)

CONFIGS = {
    "large": LARGE,
    "broad": BROAD,
    "high": HIGH,
    "medium": MEDIUM,
    "sliced": SLICED,
    "small": SMALL,
    "small sliced": SMALL_SLICED,
    "flat": FLAT,
    "slim": SLIM,
}


def is_direct(config: TileConfig) -> bool:
    """Whether invocations work alone, without shared memory."""
    return config.block_k == 1


def workgroup(config: TileConfig, *, lanes: int) -> WorkgroupLayout:
    """Invocations of a workgroup, which store `lanes` elements at once."""
    size = 64 if is_direct(config) else config.workgroup_size
    return WorkgroupLayout(size, 1, lanes, 1, inner=False, persistent=False)


def choose_config(
    profile: Any,
    count: int,
    m: int,
    n: int,
    k: int,
    accumulator: torch.dtype,
    *,
    taps: int = 1,
) -> TileConfig:
    """The tile for `count` products of (m, k) by (k, n).

    K is split between workgroups where there are too few tiles to keep the device busy.

    Args:
        profile: the device's `DeviceProfile`.
        count: products side by side (groups, phases).
        m, n, k: sizes, or hints of them.
        accumulator: dtype of the sums.
        taps: the columns are so many times those of a tap, as in weight gradients.
    """
    if profile.device_type == "cpu":
        return _split(DIRECT, count, m, n, k)
    config = _all_tiles(profile, count, m, n, k, accumulator, taps)[0]
    assert config.shared_bytes(accumulator.itemsize) <= SHARED_MEMORY
    return config


def alternatives(
    profile: Any, count: int, m: int, n: int, k: int, accumulator: torch.dtype, *, taps: int = 1
) -> list[TileConfig]:
    """Everything that is worth measuring, what the model expects most of first.

    Arguments as for `choose_config`.
    """
    if profile.device_type == "cpu":
        direct = [dataclasses.replace(DIRECT, block_m=r, thread_m=r) for r in _DIRECT_ROWS]
        return [_split(config, count, m, n, k) for config in direct] + [SMALL]
    return best_of_each(_all_tiles(profile, count, m, n, k, accumulator, taps))


def pays_to_turn_weights(
    profile: Any, config: TileConfig, count: int, m: int, n: int, k: int, nbytes: int
) -> bool:
    """Whether to copy weights whose vectors an invocation would have to gather element by element.

    Args:
        profile: the device's `DeviceProfile`.
        config: the tile.
        count, m, n, k: as for `choose_config`.
        nbytes: size of the weights.
    """
    if is_direct(config):
        return False
    product = seconds_of(config, profile, config.tiles(count, m, n), count * m * n, k)
    return _GATHERED_SHARE * product > pass_seconds(profile, 2 * nbytes)


def fills_tiles(channels: int, config: TileConfig) -> bool:
    """Whether tiles of a weight gradient's columns may keep to one tap each without much waste."""
    padded = -(-channels // config.block_n) * config.block_n
    return channels % LANES == 0 and not is_direct(config) and padded <= MOST_PADDING * channels


def _all_tiles(
    profile: Any, count: int, m: int, n: int, k: int, accumulator: torch.dtype, taps: int
) -> list[TileConfig]:
    """All tiles and splits, the fastest by the model of matrix products first."""
    tiles = list(CONFIGS.values()) if accumulator is torch.float32 else [SMALL, FLAT, SLIM]
    by_tap = [tile for tile in tiles if fills_tiles(n // taps, tile)] if taps > 1 else []

    def number(tile: TileConfig) -> int:
        return tile.tiles(count * taps, m, n // taps) if by_tap else tile.tiles(count, m, n)

    return by_model(profile, by_tap or tiles, number, count * m * n, k)


def _split(config: TileConfig, count: int, m: int, n: int, k: int) -> TileConfig:
    """For CPU drivers: several invocations share one tile's K where there are too few tiles to keep all cores busy."""
    tiles = max(config.tiles(count, m, n), 1)
    parts = min((_DIRECT_TILES + tiles // 2) // tiles, k // _LEAST_DIRECT_STEPS, _MOST_PARTS)
    return dataclasses.replace(config, split_k=parts) if parts > 1 else config
