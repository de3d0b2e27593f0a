"""The RX 5600 XT's shader compiler takes every kernel of the demo without a spill.

RADV compiles for a Navi 10 that is not there (``RADV_FORCE_FAMILY=navi10``, null hardware) and reports
registers, shared memory and spills. Nothing is executed.
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


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    driver = _DRIVER if _DRIVER.exists() else _DRIVER_64
    assert driver.exists(), "Mesa's RADV driver is missing; it comes with mesa-vulkan-drivers"
    caches = tmp_path_factory.mktemp("navi10")
    environment = os.environ | {
        "RADV_FORCE_FAMILY": "navi10",
        "VK_DRIVER_FILES": str(driver),
        "TORCHVK_DEVICE": "NAVI10",
        "TORCHVK_VALIDATION": "0",
        "TORCHVK_CACHE_DIR": str(caches / "torchvk"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    script = Path(__file__).with_name("compile_demo.py")
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert "NAVI10" in result["device"]
    return result["kernels"]


def test_forward_backward_and_optimizer_were_compiled(kernels: dict[str, dict[str, Any]]) -> None:
    names = " ".join(kernels)
    for part in ("addmm", "backward", "foreach", "argmax"):
        assert part in names, names


def test_no_kernel_spills(kernels: dict[str, dict[str, Any]]) -> None:
    spilling = {
        name: statistics
        for name, statistics in kernels.items()
        if statistics["Spilled VGPRs"] or statistics["Spilled SGPRs"] or statistics["Scratch size"]
    }
    assert not spilling, spilling


def test_shared_memory_stays_within_what_every_device_has(
    kernels: dict[str, dict[str, Any]],
) -> None:
    for name, statistics in kernels.items():
        assert statistics["LDS size"] <= 32 * 1024, (name, statistics["LDS size"])
