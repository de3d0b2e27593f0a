"""RDNA3's shader compiler, whose cards have matrix units, keeps every cooperative tile in registers.

RADV compiles for null hardware; nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from navi10 import run_for_navi10


@pytest.fixture(scope="module")
def tilings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = Path(__file__).with_name("compile_cooperative.py")
    return run_for_navi10(script, tmp_path_factory.mktemp("navi31"), family="navi31")


def test_nothing_spills(tilings: dict[str, dict[str, Any]]) -> None:
    assert tilings
    for name, statistics in tilings.items():
        assert statistics["Spilled VGPRs"] == statistics["Spilled SGPRs"] == 0, (name, statistics)
        assert statistics["Scratch size"] == 0, (name, statistics)


def test_shared_memory_fits_every_device(tilings: dict[str, dict[str, Any]]) -> None:
    assert max(statistics["LDS size"] for statistics in tilings.values()) <= 32 * 1024


def test_subgroups_are_of_the_size_that_the_kernel_was_made_for(
    tilings: dict[str, dict[str, Any]],
) -> None:
    assert {statistics["subgroup"] for statistics in tilings.values()} == {32}
