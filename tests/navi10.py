"""Running a script on a card that is not there, usually the RX 5600 XT: RADV's null hardware compiles kernels and runs
nothing.

In: a script that prints JSON in its last line. Out: that JSON. Forbidden: reading results of kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torchvk_compile.inspection.target import find_target, target_environment


def run_for_navi10(script: Path, caches: Path, family: str = "navi10") -> dict[str, Any]:
    """Run `script` in a process whose ``vk`` device is RADV's Navi 10, with empty caches in `caches`.

    `family` is another of RADV's names for the chips it compiles for.
    """
    environment = os.environ | target_environment(*find_target("navi10"))
    environment |= {
        "RADV_FORCE_FAMILY": family,
        "TORCHVK_DEVICE": family.upper(),
        "TORCHVK_VALIDATION": "0",
        "TORCHVK_CACHE_DIR": str(caches / "torchvk"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
