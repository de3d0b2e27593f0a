"""What a device must have, what it may have, and what is lost without it.

In: one device, as `DeviceProfile.to_dict` gives it. Out: `Feature` records.
Forbidden: features that no kernel and no runtime file uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_LARGE_BUFFER_BYTES = 2 << 30
_SMALL_SHARED_BYTES = 32 << 10


@dataclass(frozen=True)
class Feature:
    """One feature of one device; `lost` says what does not work, or works worse, without it."""

    name: str
    required: bool
    present: bool
    lost: str


@dataclass(frozen=True)
class _Optional:
    name: str
    present: Callable[[dict[str, Any]], bool]
    lost: str


_OPTIONAL = (
    _Optional(
        "whole subgroups of a chosen size (subgroupSizeControl, computeFullSubgroups)",
        lambda device: device["subgroup_size_control"] and device["full_subgroups"],
        "reductions combine through shared memory alone: right, but slower",
    ),
    _Optional(
        "subgroup operations on 8-, 16- and 64-bit types (shaderSubgroupExtendedTypes)",
        lambda device: device["subgroup_extended_types"],
        "int64 matrix products on CPU drivers take a slower kernel",
    ),
    _Optional(
        "float64 in shaders (shaderFloat64)",
        lambda device: device["float64"],
        "float64 tensors can be stored and copied, but not computed with",
    ),
    _Optional(
        "signed zeros, infinities and NaN kept (shaderSignedZeroInfNanPreserveFloat32)",
        lambda device: 32 in device["nan_preserve"],
        "the driver may fold x * 0 to 0 where torch has NaN",
    ),
    _Optional(
        "subnormal numbers kept on request (shaderDenormPreserveFloat32)",
        lambda device: 32 in device["denorm_preserve"],
        "numbers below 1.2e-38 may count as zero, as the driver likes",
    ),
    _Optional(
        "float32 atomic additions (shaderBufferFloat32AtomicAdd)",
        lambda device: device["float_atomic_add"],
        "scatter_add, index_add and embedding gradients use a compare-and-swap loop: slower",
    ),
    _Optional(
        "64-bit atomics (shaderBufferInt64Atomics)",
        lambda device: device["int64_atomics"],
        "scatter and index_add of int64 and float64 tensors sort their writes first: slower",
    ),
    _Optional(
        "memory budget (VK_EXT_memory_budget)",
        lambda device: device["memory_budget"],
        "free memory is not known; more than fits may page over the bus before it is refused",
    ),
    _Optional(
        "GPU timestamps",
        lambda device: device["timestamp_valid_bits"] > 0,
        "kernels cannot be timed one by one",
    ),
    _Optional(
        "compiler statistics (VK_KHR_pipeline_executable_properties)",
        lambda device: device["pipeline_executable_properties"],
        "registers, spills and ISA of kernels cannot be shown",
    ),
    _Optional(
        "buffers above 2 GiB",
        lambda device: device["max_buffer_bytes"] > _LARGE_BUFFER_BYTES,
        "one tensor may take 2 GiB at most, however much memory there is",
    ),
    _Optional(
        "32 KiB of shared memory a workgroup",
        lambda device: device["shared_memory_bytes"] >= _SMALL_SHARED_BYTES,
        "large sorts and matrix tiles do not fit; such operators fail",
    ),
)


def features_of(device: dict[str, Any], required: Sequence[str]) -> list[Feature]:
    """All features of a device: the required ones first.

    A device whose driver is too old for the question lacks something that is in no list (Vulkan
    1.2 itself); it gets one entry for that.
    """
    missing: list[str] = device["missing"]
    unlisted = [Feature(name, True, False, _UNUSABLE) for name in missing if name not in required]
    if any(feature.name.startswith("Vulkan") for feature in unlisted):
        return unlisted
    listed = [Feature(name, True, name not in missing, _UNUSABLE) for name in required]
    optional = [
        Feature(entry.name, False, bool(entry.present(device)), entry.lost) for entry in _OPTIONAL
    ]
    return [*unlisted, *listed, *optional]


_UNUSABLE = "the device cannot be used at all"
