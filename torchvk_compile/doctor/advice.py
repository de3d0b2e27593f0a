"""What public reports say about a card and its driver.

In: one device, as `DeviceProfile.to_dict` gives it. Out: `Advice`, each with its sources.
Forbidden: advice that no report supports; docs/troubleshooting.md retells each with its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_AMD = 0x1002

NAVI_10 = frozenset({0x7310, 0x7312, 0x7318, 0x7319, 0x731A, 0x731B, 0x731E, 0x731F})
"""PCI device ids of Navi 10 (gfx1010), as Linux lists them (drivers/gpu/drm/amd/amdgpu/
amdgpu_drv.c, CHIP_NAVI10). The RX 5600 XT, RX 5700 and RX 5700 XT share 0x731F."""

# VkDriverId of the Vulkan specification.
_AMD_PROPRIETARY, _AMD_OPEN_SOURCE, _MESA_RADV, _MOLTENVK = 1, 2, 3, 14

_LAST_REPORTED_BROKEN = (25, 6, 1)
"""Adrenalin release, the last one named in GPUOpen-Drivers/AMD-Gfx-Drivers#59."""


@dataclass(frozen=True)
class Advice:
    """One piece of advice; `sources` are public threads, as in ``owner/repository#number``."""

    text: str
    sources: tuple[str, ...]


def is_navi_10(device: dict[str, Any]) -> bool:
    """Whether this is an RX 5600 XT or another card with its chip."""
    return device["vendor_id"] == _AMD and device["device_id"] in NAVI_10


def advice_for(device: dict[str, Any]) -> list[Advice]:
    """Advice for this card under this driver; empty where no report is known."""
    if not is_navi_10(device):
        return []
    driver: int = device["driver_id"]
    if driver == _AMD_PROPRIETARY:
        return _windows_driver(device["driver_info"])
    if driver == _MESA_RADV:
        return [
            Advice(
                "Mesa's RADV is the driver to use on this card: compute shaders that AMD's own "
                "driver got wrong on RDNA1 were right on it.",
                ("ggml-org/llama.cpp#10710",),
            )
        ]
    if driver == _AMD_OPEN_SOURCE:
        return [
            Advice(
                "This is AMDVLK. Mesa's RADV (Debian: mesa-vulkan-drivers) is reported to draw "
                "right on Navi 10 where AMDVLK did not; select it with VK_DRIVER_FILES.",
                ("GPUOpen-Drivers/AMDVLK#105",),
            )
        ]
    if driver == _MOLTENVK:
        return [
            Advice(
                "Under MoltenVK, compute shaders that ran right on an RDNA1 card under Windows "
                "gave wrong numbers. Trust only what passes the self-test.",
                ("ggml-org/llama.cpp#15846",),
            )
        ]
    return []


def _windows_driver(driver_info: str) -> list[Advice]:
    release = _release(driver_info)
    if release is not None and release <= _LAST_REPORTED_BROKEN:
        compiler = (
            "Install a newer Adrenalin driver than this one: from 24.12.1 to 25.6.1 its shader "
            "compiler is reported to write wrong data, or to hang, on RX 5700 in shaders that "
            "need many registers."
        )
    else:
        compiler = (
            "Adrenalin 24.12.1 to 25.6.1 miscompiled shaders that need many registers on RX 5700; "
            "AMD calls it fixed without naming the release. If the self-test fails, update."
        )
    return [
        Advice(compiler, ("GPUOpen-Drivers/AMD-Gfx-Drivers#59", "ggml-org/llama.cpp#10710")),
        Advice(
            "float16 vectors in subgroup shuffles are reported wrong under Windows on RDNA2 and "
            "older. TorchVK shuffles float32; should a float16 check fail all the same, train in "
            "float32.",
            ("ggml-org/llama.cpp#19921",),
        ),
        Advice(
            "RDNA1 is served by a driver branch that gets no new Vulkan extensions; TorchVK needs "
            "none of them.",
            ("GPUOpen-Drivers/AMD-Gfx-Drivers#93",),
        ),
    ]


def _release(driver_info: str) -> tuple[int, ...] | None:
    """The Adrenalin release in text such as ``24.12.1 (AMD proprietary shader compiler)``."""
    found = re.match(r"(\d\d)\.(\d+)\.(\d+)\b", driver_info)
    return tuple(int(part) for part in found.groups()) if found else None
