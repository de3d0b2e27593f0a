"""The RX 5600 XT's shader compiler keeps Winograd's kernels in registers, with waves to hide latency.

RADV compiles for null hardware; nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from navi10 import run_for_navi10


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = Path(__file__).with_name("compile_winograd.py")
    return run_for_navi10(script, tmp_path_factory.mktemp("navi10"))


def test_registers_and_shared_memory(kernels: dict[str, dict[str, Any]]) -> None:
    for part in ("forward", "input", "float32", "float16", "winograd_source", "winograd_weights"):
        assert part in " ".join(kernels)
    for name, statistics in kernels.items():
        assert statistics["Spilled VGPRs"] == statistics["Spilled SGPRs"] == 0, (name, statistics)
        assert statistics["Scratch size"] == 0, (name, statistics)
        assert statistics["LDS size"] <= 32 * 1024, (name, statistics)
        assert statistics["Subgroups per SIMD"] >= 4, (name, statistics)
