"""The RX 5600 XT's shader compiler keeps every tiling in registers.

RADV compiles for null hardware; nothing runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_DRIVER = Path("/usr/share/vulkan/icd.d/radeon_icd.json")
_DRIVER_64 = _DRIVER.with_name("radeon_icd.x86_64.json")

# Measured with Mesa 25.0; more registers mean fewer waves to hide latency with.
_VGPRS = {
    "LARGE": 128,
    "HIGH": 168,
    "BROAD": 168,
    "MEDIUM": 168,
    "SMALL": 84,
    "TALL": 168,
    "WIDE": 168,
}


@pytest.fixture(scope="module")
def tilings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    driver = _DRIVER if _DRIVER.exists() else _DRIVER_64
    assert driver.exists(), "Mesa's RADV driver is missing; it comes with mesa-vulkan-drivers"
    caches = tmp_path_factory.mktemp("navi10")
    environment = os.environ | {
        "RADV_FORCE_FAMILY": "navi10",
        "VK_DRIVER_FILES": str(driver),
        "TORCHVK_DEVICE": "NAVI10",
        "TORCHVK_VALIDATION": "0",
        "TORCHVK_CACHE_DIR": str(caches / "torchvk"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    }
    script = Path(__file__).with_name("compile_tiles.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_nothing_spills(tilings: dict[str, dict[str, Any]]) -> None:
    for name, statistics in tilings.items():
        assert statistics["Spilled VGPRs"] == statistics["Spilled SGPRs"] == 0, (name, statistics)
        assert statistics["Scratch size"] == 0, (name, statistics)


def test_register_budgets(tilings: dict[str, dict[str, Any]]) -> None:
    over = {
        name: statistics["VGPRs"]
        for name, statistics in tilings.items()
        if name.endswith("float32") and statistics["VGPRs"] > _VGPRS[name.split()[0]]
    }
    assert not over


def test_shared_memory_fits_every_device(tilings: dict[str, dict[str, Any]]) -> None:
    assert max(statistics["LDS size"] for statistics in tilings.values()) <= 32 * 1024
