"""How a kernel's iterations are spread over workgroups, invocations and lanes.

In: iteration counts and the device's profile. Out: a `WorkgroupLayout`. Forbidden: emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torchvk_compile import config

WORKGROUP_SIZE = 256
LANES = 4

_POINTWISE_SIZE, _POINTWISE_TURNS = 128, 2
"""Invocations of a workgroup without reductions, and how often each has its turn: two loads under way hide the memory's
latency where there is arithmetic (NVIDIA H200, 64M floats: tanh GELU 132 us, 143 with 256 invocations of one turn; a
scaling 131 us either way)."""

ASSUMED_COMPUTE_UNITS = 32
"""Of a device that does not say."""

_GROUPS_PER_UNIT = 4
"""Workgroups a compute unit should have to choose from while others wait for memory."""

_NARROWEST = 32
"""Neighbouring rows a workgroup reads at least: 128 bytes of float32, a cache line of RDNA."""

_LARGEST_WORKGROUP = 1024
"""Invocations of a workgroup, at most."""

_SHORT = 8
"""Elements of a column that one invocation adds before sharing it pays."""

_PARTS_PER_UNIT, _SHORTEST_PART = 8, 32
"""Of a sum over rows: parts for each compute unit, rows of a part."""


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
        rounds: of every loop along the reduction, if they are unrolled and its values stay in registers; else 0.
        turns: groups of `lanes` iterations that an invocation handles without a reduction, a workgroup's width apart.
        walk: neighbouring rows that an invocation has one after the other, to add them up.
    """

    rows: int
    columns: int
    lanes: int
    subgroup: int
    inner: bool
    persistent: bool
    rounds: int = 0
    turns: int = 1
    walk: int = 1

    @property
    def workgroup_size(self) -> int:
        return self.rows * self.columns


def plain_layout(lanes: int) -> WorkgroupLayout:
    """One invocation per `lanes` consecutive elements."""
    return WorkgroupLayout(WORKGROUP_SIZE, 1, lanes, 1, inner=False, persistent=False)


def pointwise_layout(lanes: int) -> WorkgroupLayout:
    """Every invocation has `lanes` consecutive elements a turn."""
    return WorkgroupLayout(
        _POINTWISE_SIZE, 1, lanes, 1, inner=False, persistent=False, turns=_POINTWISE_TURNS
    )


def reduction_layout(
    profile: Any,
    rows: int,
    length: int,
    *,
    inner: bool,
    static_length: bool,
    lanes: int = 1,
    held: int = 0,
) -> WorkgroupLayout:
    """Choose who reduces what.

    Args:
        profile: the device's `DeviceProfile`.
        rows: number of reductions (a hint where it is dynamic).
        length: elements per reduction (a hint where it is dynamic).
        inner: the reduced elements of a row are consecutive in memory.
        static_length: `length` is exact.
        lanes: consecutive elements of a row that an invocation reads at once.
        held: most elements of a row that an invocation can keep in registers; 0 if it shall keep none.
    """
    if not inner:
        side = min(WORKGROUP_SIZE, _power_of_two(rows))
        columns = min(WORKGROUP_SIZE // side, _power_of_two(length))
        # Few workgroups with long columns: narrower ones, each column shared by more invocations.
        enough = _GROUPS_PER_UNIT * _units(profile)
        while side > _NARROWEST and rows < side * enough and length > _SHORT * columns:
            side, columns = side // 2, columns * 2
        return WorkgroupLayout(side, columns, 1, 1, inner=False, persistent=False)
    subgroup = reduction_subgroup(profile)
    if static_length and length <= max(subgroup, 32):
        columns = _power_of_two(length)
        return _inner_layout(rows, columns, 1, subgroup, persistent=True)
    # A row is shared by one subgroup, by more invocations where there are few rows.
    most = _power_of_two(-(-length // lanes))
    columns = min(most, max(subgroup, 32) if profile.device_type != "cpu" else subgroup)
    enough = _GROUPS_PER_UNIT * WORKGROUP_SIZE * _units(profile)
    while columns < min(most, WORKGROUP_SIZE) and rows * columns < enough:
        columns *= 2
    layout = _inner_layout(rows, columns, lanes, subgroup)
    if not (static_length and held):
        return layout
    while columns * held < length:
        columns *= 2
    if columns > widest_kept_row(profile):
        return layout
    rounds = -(-length // (columns * lanes))
    return _inner_layout(rows, columns, lanes, subgroup, rounds=rounds)


def parts_of_sums(profile: Any, rows: int) -> int:
    """Into how many equal parts a sum over many rows is split, 1 where that does not divide well.

    A part is short enough for all compute units to have some, and long enough for its result to be little beside it.
    """
    if profile.device_type == "cpu":
        return 1
    most = min(_PARTS_PER_UNIT * _units(profile), rows // _SHORTEST_PART)
    parts = next((parts for parts in range(most, 0, -1) if rows % parts == 0), 1)
    return parts if parts >= fewest_walking_groups(profile) else 1


def fewest_walking_groups(profile: Any) -> int:
    """Workgroups there must be for each to walk several rows: one for each compute unit."""
    return _units(profile)


def widest_kept_row(profile: Any) -> int:
    """Invocations that may share a row which stays in their registers."""
    if profile.device_type == "cpu":
        # A software rasteriser puts all registers aside at every barrier.
        return reduction_subgroup(profile)
    return min(_LARGEST_WORKGROUP, profile.max_workgroup_invocations)


def rounds_ahead(profile: Any, lanes: int) -> int:
    """Rounds of a loop along the reduction whose loads are under way together.

    That many bytes wait for memory at once; a software rasteriser does not wait.
    """
    if profile.device_type == "cpu":
        return 1
    return 4 if lanes == 1 else 2


def _inner_layout(
    rows: int, columns: int, lanes: int, subgroup: int, *, persistent: bool = False, rounds: int = 0
) -> WorkgroupLayout:
    side = max(1, min(WORKGROUP_SIZE // columns, _power_of_two(rows)))
    # A workgroup holds at least one whole subgroup.
    side = max(side, subgroup // columns)
    return WorkgroupLayout(side, columns, lanes, subgroup, True, persistent, rounds)


def _units(profile: Any) -> int:
    return profile.compute_units or ASSUMED_COMPUTE_UNITS


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
