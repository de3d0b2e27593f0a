"""The RX 5600 XT's shader compiler takes every kernel of the demo without a spill.

RADV compiles for a Navi 10 that is not there (``RADV_FORCE_FAMILY=navi10``, null hardware) and reports
registers, shared memory and spills. Nothing is executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from navi10 import run_for_navi10


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = Path(__file__).with_name("compile_demo.py")
    result = run_for_navi10(script, tmp_path_factory.mktemp("navi10"))
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
