"""How a kernel's iterations are spread over workgroups, invocations and lanes.

In: iteration counts and the device's profile. Out: a `WorkgroupLayout`. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torchvk_compile import config

WORKGROUP_SIZE = 256
LANES = 4
GRID_ROW = 65535
"""Longest row of workgroups: every Vulkan device takes this many in x (limit maxComputeWorkGroupCount)."""


ASSUMED_COMPUTE_UNITS = 32
"""Of a device that does not say."""

_GROUPS_PER_UNIT = 4
"""Workgroups a compute unit should have to choose from while others wait for memory."""

_NARROWEST = 32
"""Neighbouring rows a workgroup reads at least: 128 bytes of float32, a cache line of RDNA."""

_SHORT = 8
"""Elements of a column that one invocation adds before sharing it pays."""


@dataclasses.dataclass(frozen=True)
class WorkgroupLayout:
    """Invocations of one workgroup.

    Attributes:
        rows: output elements (or groups of `lanes` of them, without a reduction) handled side by side.
        columns: invocations that share the reduction of one row; 1 without a reduction.
        lanes: consecutive iterations handled by one invocation.
        subgroup: subgroup size the kernel relies on, 1 if none.
        inner: neighbouring invocations walk along the reduction; else along the rows.
        persistent: one invocation sees at most one iteration of the reduction, so that no loop is needed.
    """

    rows: int
    columns: int
    lanes: int
    subgroup: int
    inner: bool
    persistent: bool

    @property
    def workgroup_size(self) -> int:
        return self.rows * self.columns


def pointwise_layout(lanes: int) -> WorkgroupLayout:
    """One invocation per `lanes` consecutive elements."""
    return WorkgroupLayout(WORKGROUP_SIZE, 1, lanes, 1, inner=False, persistent=False)


def reduction_layout(
    profile: Any, rows: int, length: int, *, inner: bool, static_length: bool
) -> WorkgroupLayout:
    """Choose who reduces what.

    Args:
        profile: the device's `DeviceProfile`.
        rows: number of reductions (a hint where it is dynamic).
        length: elements per reduction (a hint where it is dynamic).
        inner: the reduced elements of a row are consecutive in memory.
        static_length: `length` is exact.
    """
    if not inner:
        side = min(WORKGROUP_SIZE, _power_of_two(rows))
        columns = min(WORKGROUP_SIZE // side, _power_of_two(length))
        # Few workgroups with long columns: narrower ones, each column shared by more invocations.
        enough = _GROUPS_PER_UNIT * (profile.compute_units or ASSUMED_COMPUTE_UNITS)
        while side > _NARROWEST and rows < side * enough and length > _SHORT * columns:
            side, columns = side // 2, columns * 2
        return WorkgroupLayout(side, columns, 1, 1, inner=False, persistent=False)
    subgroup = reduction_subgroup(profile)
    persistent = static_length and length <= max(subgroup, 32)
    if persistent:
        columns = _power_of_two(length)
    else:
        columns = min(WORKGROUP_SIZE, _power_of_two(-(-length // LANES)))
        # With rows to spare, fewer invocations per row mean fewer steps to combine them.
        enough = 4 * WORKGROUP_SIZE * max(profile.compute_units, 1)
        while columns > subgroup and rows * columns > enough:
            columns //= 2
    side = min(WORKGROUP_SIZE // columns, _power_of_two(rows))
    # A workgroup holds at least one whole subgroup.
    side = max(side, subgroup // columns)
    return WorkgroupLayout(side, columns, 1 if persistent else LANES, subgroup, True, persistent)


def reduction_subgroup(profile: Any) -> int:
    """Subgroup size a reduction may rely on, 1 where subgroups cannot be pinned to one size.

    A size is relied on only if every subgroup is known to be full and of that size.
    """
    if not (profile.full_subgroups and profile.subgroup_size_control):
        return 1
    if "subgroups" in config.without:
        return 1
    size = profile.subgroup_size
    # RDNA runs 32 natively and offers 64; a fixed 32 keeps more workgroups in flight.
    if profile.min_subgroup_size <= 32 <= profile.max_subgroup_size:
        size = 32
    return size


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
