"""The RX 5600 XT's shader compiler keeps every tiling in registers.

RADV compiles for null hardware; nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from navi10 import run_for_navi10

# Measured with Mesa 25.0; more registers mean fewer waves to hide latency with.
_VGPRS = {
    "LARGE": 128,
    "HIGH": 168,
    "BROAD": 168,
    "MEDIUM": 168,
    "SLICED": 128,
    "SMALL": 84,
    "SMALL_SLICED": 64,
    "TALL": 168,
    "WIDE": 168,
}


@pytest.fixture(scope="module")
def tilings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = Path(__file__).with_name("compile_tiles.py")
    return run_for_navi10(script, tmp_path_factory.mktemp("navi10"))


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
