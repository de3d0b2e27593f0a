"""The device under test for the runtime tests.

In: the session's driver. Out: an opened `_runtime.Device`; scripts run in their own process.
Forbidden: torch tensors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def device() -> Any:
    """Device 0, with TorchVK's exception classes registered."""
    from torchvk_compile import _runtime, errors

    errors.register_with_runtime()
    return _runtime.device(0)


@pytest.fixture
def run_script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python source in a fresh process that can import `device_memory`.

    The script finds `runtime` (the module) and `errors` imported. Fails the test when the process
    does not end with status 0 or the validation layer spoke.
    """

    def run(source: str, *, check: bool = True, **environment: str) -> Any:
        preamble = (
            "from torchvk_compile import _runtime as runtime, errors\n"
            "errors.register_with_runtime()\n"
        )
        search_path = os.pathsep.join(
            [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        )
        result = subprocess.run(
            [sys.executable, "-c", preamble + source],
            env={**os.environ, "PYTHONPATH": search_path, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if check:
            assert result.returncode == 0, f"status {result.returncode}\n{result.stderr}"
            assert "torchvk validation" not in result.stderr, result.stderr
        return result

    return run
