"""Which tile a matrix product is computed with.

In: sizes (hints where they are dynamic), dtype and the device's profile. Out: a `GemmConfig`. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

_ASSUMED_COMPUTE_UNITS = 32
"""Used where the driver does not tell; a mid-range card."""

_SHARED_MEMORY = 32 * 1024
"""Bytes of shared memory that every workgroup may use on any device."""


@dataclasses.dataclass(frozen=True)
class GemmConfig:
    """One tiling of a matrix product.

    Attributes:
        block_m, block_n: the output tile of a workgroup.
        block_k: how much of K is in shared memory at a time.
        thread_m, thread_n: outputs of one invocation; multiples of 4.
        split_k: workgroups that share one output tile, each with its part of K.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    split_k: int = 1

    @property
    def threads_m(self) -> int:
        return self.block_m // self.thread_m

    @property
    def threads_n(self) -> int:
        return self.block_n // self.thread_n

    @property
    def workgroup_size(self) -> int:
        return self.threads_m * self.threads_n

    def tiles(self, batch: int, m: int, n: int) -> int:
        """Workgroups without splitting K."""
        return batch * -(-m // self.block_m) * -(-n // self.block_n)

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of one workgroup, in bytes; `itemsize` is that of the accumulator."""
        return self.block_k * (self.block_m + self.block_n + 8) * itemsize


# 8x8 outputs per invocation give 16 FMA per 16-byte read of shared memory, in 128 registers on RDNA.
LARGE = GemmConfig(128, 128, 16, 8, 8)
MEDIUM = GemmConfig(64, 64, 16, 8, 8)
SMALL = GemmConfig(32, 32, 16, 4, 4)
TALL = GemmConfig(64, 16, 16, 4, 4)
WIDE = GemmConfig(16, 64, 16, 4, 4)

CONFIGS = {"large": LARGE, "medium": MEDIUM, "small": SMALL, "tall": TALL, "wide": WIDE}


def choose_config(profile: Any, batch: int, m: int, n: int, k: int, accumulator: torch.dtype) -> GemmConfig:
    """The tile for ``batch`` products of (m, k) by (k, n).

    The largest tile whose grid keeps the device busy: 1.5 workgroups of 256 invocations per compute unit, as
    measured (at 1024 x 1024 on 132 units, 64 large tiles reach 60 % of the speed of 256 medium ones).

    Args:
        profile: the device's `DeviceProfile`.
        batch, m, n, k: sizes, or hints of them.
        accumulator: dtype of the sums.
    """
    units = profile.compute_units or _ASSUMED_COMPUTE_UNITS
    if n <= TALL.block_n:
        config = TALL
    elif m <= WIDE.block_m:
        config = WIDE
    elif accumulator.itemsize == 4 and LARGE.tiles(batch, m, n) >= 1.5 * units:
        config = LARGE
    elif accumulator.itemsize == 4 and min(m, n) > 32 and MEDIUM.tiles(batch, m, n) >= 2 * units:
        config = MEDIUM
    else:
        config = SMALL
    assert config.shared_bytes(accumulator.itemsize) <= _SHARED_MEMORY
    return config
