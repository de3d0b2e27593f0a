"""``TORCHVK_LOG``: levels and artifacts, one by one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import torch

from torchvk_compile import config
from torchvk_compile.log import logger


def enabled(artifact: str, level: int) -> bool:
    return logger(artifact).isEnabledFor(level)


@pytest.mark.parametrize(
    ("setting", "artifact", "level"),
    [
        ("warning", "plans", logging.WARNING),
        ("info", "plans", logging.INFO),
        ("plans", "plans", logging.INFO),
        ("+plans", "plans", logging.DEBUG),
        ("plans,cache", "cache", logging.INFO),
        ("plans", "cache", logging.WARNING),
        ("debug,plans", "cache", logging.DEBUG),
        (" Plans , +Cache ", "cache", logging.DEBUG),
    ],
)
def test_levels_of_artifacts(setting: str, artifact: str, level: int) -> None:
    with config.patch(log=setting):
        assert enabled(artifact, level)
        lower = level - 10
        assert lower < logging.DEBUG or setting == "plans" or not enabled(artifact, lower)
    assert not enabled(artifact, logging.INFO)


def test_unknown_artifact_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'kernals' is none of .*did you mean 'kernels'"):
        config.log = "kernals"


def test_every_artifact_says_something(vk: torch.device, tmp_path: str) -> None:
    program = (
        "import torch\n"
        "f = torch.compile(lambda x: x.sinh() * 2, backend='torchvk')\n"
        "x = torch.ones(7, device='vk')\n"
        "f(x); f(x); x.cosh()\n"
        "a = torch.ones(8, 8, device='vk')\n"
        "torch.compile(torch.mm, backend='torchvk', mode='max-autotune')(a, a)\n"
    )
    wanted = ",".join(f"+{name}" for name in config.ARTIFACTS)
    environment = {**os.environ, "TORCHVK_LOG": wanted, "TORCHVK_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for artifact in config.ARTIFACTS:
        assert f"torchvk.{artifact} " in done.stderr
    assert "aten.sinh" in done.stderr
    assert done.stderr.count("torchvk.plans DEBUG") >= 3
