"""Running a script on the RX 5600 XT that is not there: RADV's null hardware compiles kernels and runs nothing.

In: a script that prints JSON in its last line. Out: that JSON. Forbidden: reading results of kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_DRIVERS = [
    Path("/usr/share/vulkan/icd.d") / name for name in ("radeon_icd.json", "radeon_icd.x86_64.json")
]


def run_for_navi10(script: Path, caches: Path) -> dict[str, Any]:
    """Run `script` in a process whose ``vk`` device is RADV's Navi 10, with empty caches in `caches`."""
    driver = next((path for path in _DRIVERS if path.exists()), None)
    assert driver is not None, "Mesa's RADV driver is missing; it comes with mesa-vulkan-drivers"
    environment = os.environ | {
        "RADV_FORCE_FAMILY": "navi10",
        "VK_DRIVER_FILES": str(driver),
        "TORCHVK_DEVICE": "NAVI10",
        "TORCHVK_VALIDATION": "0",
        "TORCHVK_CACHE_DIR": str(caches / "torchvk"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
