"""The shapes that all tiled kernels share: what of the output belongs to a workgroup, and to each of its invocations.

In: numbers. Out: frozen dataclasses, from which products, convolutions and attention derive their configurations.
Forbidden: choosing one, emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

_ASSUMED_COMPUTE_UNITS = 32
"""Used where the driver does not tell; a mid-range card."""

NVIDIA, AMD = 0x10DE, 0x1002
"""Vendors of PCI devices."""

SHARED_MEMORY = 32 * 1024
"""Bytes of shared memory that a workgroup may use on any device."""


def compute_units(profile: Any) -> int:
    """Compute units of a device (a `DeviceProfile`), assumed where its driver does not tell."""
    return profile.compute_units or _ASSUMED_COMPUTE_UNITS


def lanes_per_unit(profile: Any) -> int:
    """float32 operations that a compute unit starts per cycle; drivers do not tell."""
    return 128 if profile.vendor_id == NVIDIA else 64


@dataclasses.dataclass(frozen=True)
class Tile:
    """A rectangle of the output per workgroup, operands in shared memory: for GPUs.

    Attributes:
        block_m, block_n: rows and columns of a workgroup.
        thread_m, thread_n: of one invocation; multiples of 4.
    """

    block_m: int
    block_n: int
    thread_m: int
    thread_n: int

    def __str__(self) -> str:
        return f"tile {self.block_m}x{self.block_n}, {self.thread_m}x{self.thread_n} an invocation"

    @property
    def threads_m(self) -> int:
        return self.block_m // self.thread_m

    @property
    def threads_n(self) -> int:
        return self.block_n // self.thread_n

    @property
    def workgroup_size(self) -> int:
        return self.threads_m * self.threads_n


@dataclasses.dataclass(frozen=True)
class Panel:
    """Rows times columns per subgroup, operands in registers only: for drivers that run on a CPU.

    Such drivers turn a subgroup into one vector of the CPU; shared memory gains nothing there, and barriers cost.

    Attributes:
        rows: of the output, the same for all lanes.
        columns: of the output per lane.
        subgroup: invocations per workgroup, all in one subgroup.
    """

    rows: int
    columns: int
    subgroup: int

    def __str__(self) -> str:
        return f"panel {self.rows}x{self.columns} a lane, {self.subgroup} lanes"

    @property
    def block_m(self) -> int:
        return self.rows

    @property
    def block_n(self) -> int:
        return self.columns * self.subgroup

    @property
    def workgroup_size(self) -> int:
        return self.subgroup
