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
    TileConfig,
    best_of_each,
    by_model,
)
from torchvk_compile.codegen.layout import WorkgroupLayout
from torchvk_compile.codegen.tiles import SHARED_MEMORY, compute_units

_LEAST_SPLIT_STEPS = 8
"""Steps of block_k that a workgroup should have left when K is split."""

_MOST_PARTS = 64
"""Partial sums of an output that the second pass adds up, at most."""

# On a CPU driver an invocation computes its outputs alone: shared memory is slow there and unrolled tiles take long to
# compile.
DIRECT = TileConfig(8, 4, 8, 4, 1)
_DIRECT_ROWS = (16, 8, 4, 2)
"""Outputs of an invocation, four times over, that are worth measuring."""

FLAT = TileConfig(16, 64, 4, 4, 16)
SLIM = TileConfig(64, 16, 4, 4, 16)

CONFIGS = {
    "large": LARGE,
    "broad": BROAD,
    "high": HIGH,
    "medium": MEDIUM,
    "small": SMALL,
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
    long: bool = False,
) -> TileConfig:
    """The tile for `count` products of (m, k) by (k, n).

    K is split between workgroups where there are too few tiles to keep the device busy.

    Args:
        profile: the device's `DeviceProfile`.
        count: products side by side (groups, phases).
        m, n, k: sizes, or hints of them.
        accumulator: dtype of the sums.
        long: K is much longer than m and n, as in weight gradients.
    """
    if profile.device_type == "cpu":
        return _split(profile, DIRECT, count, m, n, k)
    units = compute_units(profile)
    config = _tile(m, n, accumulator, long)
    splits = min(k // (_LEAST_SPLIT_STEPS * config.block_k), _MOST_PARTS if long else 8)
    if config is not SMALL and config.tiles(count, m, n) * max(splits, 1) < units:
        # Not even shared tiles would keep the device busy.
        config = SMALL
    assert config.shared_bytes(accumulator.itemsize) <= SHARED_MEMORY
    return _split(profile, config, count, m, n, k)


def alternatives(
    profile: Any, count: int, m: int, n: int, k: int, accumulator: torch.dtype
) -> list[TileConfig]:
    """Everything that is worth measuring, what the model of matrix products expects most of first.

    Arguments as for `choose_config`.
    """
    if profile.device_type == "cpu":
        direct = [dataclasses.replace(DIRECT, block_m=r, thread_m=r) for r in _DIRECT_ROWS]
        return [_split(profile, config, count, m, n, k) for config in direct] + [SMALL]
    tiles = list(CONFIGS.values()) if accumulator is torch.float32 else [SMALL, FLAT, SLIM]
    return best_of_each(by_model(profile, tiles, count, m, n, k))


def _tile(m: int, n: int, accumulator: torch.dtype, long: bool) -> TileConfig:
    """The tile that fits the product's narrower side, measured on a large GPU.

    At 64 channels 64 x 128 reaches 34 TFLOP/s where 128 x 128 reaches 18; weight gradients, whose tiles are few, go
    fastest with the largest that fits.
    """
    if m <= FLAT.block_m:
        return FLAT
    if n <= SLIM.block_n:
        return SLIM
    if accumulator.itemsize > 4 or min(m, n) <= SMALL.block_m:
        return SMALL
    if m > 64 and n > 64:
        return LARGE if long else BROAD
    if n > 64:
        return BROAD
    return HIGH if m > 64 else MEDIUM


def _split(profile: Any, config: TileConfig, count: int, m: int, n: int, k: int) -> TileConfig:
    """Let several workgroups share one tile's K where there are too few tiles to keep the device busy."""
    units = compute_units(profile)
    wanted = 2 * units if profile.device_type != "cpu" else 256
    least = _LEAST_SPLIT_STEPS * config.block_k if not is_direct(config) else 512
    tiles = max(config.tiles(count, m, n), 1)
    parts = min((wanted + tiles // 2) // tiles, k // least, _MOST_PARTS)
    return dataclasses.replace(config, split_k=parts) if parts > 1 else config
