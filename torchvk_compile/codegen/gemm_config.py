"""Which tile a matrix product is computed with.

In: sizes (hints where they are dynamic), dtype and the device's profile. Out: a `TileConfig` or `PanelConfig`.
Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

_ASSUMED_COMPUTE_UNITS = 32
"""Used where the driver does not tell; a mid-range card."""

_SHARED_MEMORY = 32 * 1024
"""Bytes of shared memory that a workgroup may use on any device."""


@dataclasses.dataclass(frozen=True)
class TileConfig:
    """A tile of the output per workgroup, operands in shared memory: for GPUs.

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


@dataclasses.dataclass(frozen=True)
class PanelConfig:
    """Rows times columns per subgroup, operands in registers only: for drivers that run on a CPU.

    Such drivers turn a subgroup into one vector of the CPU; shared memory gains nothing there, and barriers cost.

    Attributes:
        rows: of the output, the same for all lanes.
        columns: of the output per lane.
        steps: of K whose elements of the first operand are fetched by one load, lane by lane; at most `subgroup`.
        subgroup: invocations per workgroup, all in one subgroup.
        split_k: see `TileConfig`; CPUs have too few units for it to pay.
    """

    rows: int
    columns: int
    steps: int
    subgroup: int
    split_k: int = 1

    @property
    def block_m(self) -> int:
        return self.rows

    @property
    def block_n(self) -> int:
        return self.columns * self.subgroup


GemmConfig = TileConfig | PanelConfig

# 8x8 outputs per invocation give 16 FMA per 16-byte read of shared memory, in 128 registers on RDNA.
LARGE = TileConfig(128, 128, 16, 8, 8)
MEDIUM = TileConfig(64, 64, 16, 8, 8)
SMALL = TileConfig(32, 32, 16, 4, 4)
TALL = TileConfig(64, 16, 16, 4, 4)
WIDE = TileConfig(16, 64, 16, 4, 4)


def choose_config(profile: Any, batch: int, m: int, n: int, k: int, accumulator: torch.dtype) -> GemmConfig:
    """The tile for ``batch`` products of (m, k) by (k, n).

    Args:
        profile: the device's `DeviceProfile`.
        batch, m, n, k: sizes, or hints of them.
        accumulator: dtype of the sums.
    """
    if _runs_panels(profile, accumulator):
        return _panel(profile, batch * m * n * k)
    config = _tile(profile, batch, m, n, accumulator)
    assert config.shared_bytes(accumulator.itemsize) <= _SHARED_MEMORY
    return config


def _tile(profile: Any, batch: int, m: int, n: int, accumulator: torch.dtype) -> TileConfig:
    """The largest tile whose grid keeps the device busy: 1.5 workgroups of 256 invocations per compute unit.

    Measured: at 1024 x 1024 on 132 units, 64 large tiles reach 60 % of the speed of 256 medium ones.
    """
    units = profile.compute_units or _ASSUMED_COMPUTE_UNITS
    if n <= TALL.block_n:
        return TALL
    if m <= WIDE.block_m:
        return WIDE
    if accumulator.itemsize == 4:
        if LARGE.tiles(batch, m, n) >= 1.5 * units:
            return LARGE
        if min(m, n) > SMALL.block_m and MEDIUM.tiles(batch, m, n) >= 2 * units:
            return MEDIUM
    return SMALL


def _runs_panels(profile: Any, accumulator: torch.dtype) -> bool:
    if profile.device_type != "cpu" or not profile.subgroup_shuffle:
        return False
    if profile.min_subgroup_size != profile.max_subgroup_size:
        return False
    return accumulator is not torch.int64 or profile.subgroup_extended_types


def _panel(profile: Any, multiplications: int) -> PanelConfig:
    """Sixteen rows by four columns per lane, measured at 15 to 20 GFLOP/s on one core; small products compile faster."""
    subgroup = profile.subgroup_size
    rows, columns = (8, 2) if multiplications <= 64**3 else (16, 4)
    return PanelConfig(rows, columns, min(8, subgroup), subgroup)
