"""The RX 5600 XT's shader compiler keeps every kernel of linear algebra in registers.

RADV compiles for null hardware; nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import compile_linalg
import pytest
import torch
from navi10 import run_for_navi10


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = Path(compile_linalg.__file__)
    return run_for_navi10(script, tmp_path_factory.mktemp("navi10"))


def test_every_kernel_was_compiled(kernels: dict[str, dict[str, Any]]) -> None:
    for kernel in compile_linalg.KERNELS:
        for dtype in (torch.float32, torch.float64):
            assert f"{kernel} {dtype} 0" in kernels


def test_nothing_spills(kernels: dict[str, dict[str, Any]]) -> None:
    for name, statistics in kernels.items():
        assert statistics["Spilled VGPRs"] == statistics["Spilled SGPRs"] == 0, (name, statistics)
        assert statistics["Scratch size"] == 0, (name, statistics)


def test_shared_memory_fits_every_device(kernels: dict[str, dict[str, Any]]) -> None:
    assert max(statistics["LDS size"] for statistics in kernels.values()) <= 32 * 1024
