"""The profile of the device a graph is compiled for.

In: Inductor's current device. Out: the runtime's `DeviceProfile` and a fingerprint of it.
Forbidden: opening the device.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from torch._inductor.virtualized import V


def current_profile() -> Any:
    """`DeviceProfile` of the device Inductor is generating code for."""
    return profile_of(V.graph.get_current_device_or_throw().index or 0)


def profile_of(device_index: int) -> Any:
    """`DeviceProfile` of a vk device."""
    from torchvk_compile.device import profile

    return profile(device_index)


_FUSING_VENDORS = (0x1002, 0x10DE, 0x8086)
"""AMD, NVIDIA, Intel: PCI vendors whose GPUs have a multiply-add with one rounding, which drivers use for ``fma``."""


def fuses_multiply_add(profile: Any) -> bool:
    """Whether Slang's ``fma`` on float rounds once. Vulkan leaves it open, and Mesa's CPU driver rounds twice."""
    return profile.device_type != "cpu" and profile.vendor_id in _FUSING_VENDORS


@functools.cache
def fingerprint(device_index: int) -> str:
    """Digest of everything about the device that generated code may depend on."""
    properties = sorted(profile_of(device_index).to_dict().items())
    return hashlib.sha256(repr(properties).encode()).hexdigest()[:16]
