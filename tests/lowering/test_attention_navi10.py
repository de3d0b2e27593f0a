"""The RX 5600 XT's shader compiler keeps attention in registers.

RADV compiles for null hardware; nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from navi10 import run_for_navi10

# Measured with Mesa 25.0: the most of a case's three kernels; 128 leave four waves to hide latency with.
_VGPRS = {
    "32 float32": 128,
    "64 float32": 176,
    "64 float32 dropout": 200,
    "64 float16 causal": 168,
    "128 float32": 160,
    "256 float32": 176,
}


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    script = Path(__file__).with_name("compile_attention.py")
    return run_for_navi10(script, tmp_path_factory.mktemp("navi10"))


def test_nothing_spills(passes: dict[str, list[dict[str, Any]]]) -> None:
    for name, kernels in passes.items():
        for statistics in kernels:
            assert statistics["Spilled VGPRs"] == statistics["Spilled SGPRs"] == 0, (
                name,
                statistics,
            )
            assert statistics["Scratch size"] == 0, (name, statistics)


def test_registers_and_shared_memory(passes: dict[str, list[dict[str, Any]]]) -> None:
    for name, kernels in passes.items():
        for statistics in kernels:
            if "alternative" not in name:
                assert statistics["VGPRs"] <= _VGPRS[name], (name, statistics)
            assert statistics["Subgroups per SIMD"] >= 4, (name, statistics)
            assert statistics["LDS size"] <= 32 * 1024, (name, statistics)
