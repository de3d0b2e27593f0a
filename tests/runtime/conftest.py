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


_PREAMBLE = """
import importlib.util, os

class VulkanError(RuntimeError): pass
class DeviceLostError(VulkanError): pass
class DeviceAssertError(RuntimeError): pass

specification = importlib.util.spec_from_file_location("_runtime", os.environ["RUNTIME_MODULE"])
runtime = importlib.util.module_from_spec(specification)
specification.loader.exec_module(runtime)
runtime.register_exceptions(VulkanError, DeviceLostError, MemoryError, DeviceAssertError)
"""


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., Any]:
    """Runs Python source in a fresh process that can import `device_memory`.

    The script finds `runtime` (the extension module, loaded without torch) and the exception
    classes. The test fails when the process does not end with status 0 or when the validation
    layer spoke.
    """
    from device_memory import KERNELS_VARIABLE, kernels

    from torchvk_compile import _runtime

    spirv = tmp_path / "kernels.spv"
    spirv.write_bytes(kernels())
    module = _runtime.__file__
    assert module is not None

    def run(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-c", _PREAMBLE + source],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "RUNTIME_MODULE": module,
                KERNELS_VARIABLE: str(spirv),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, f"status {result.returncode}\n{result.stderr}"
        assert "torchvk validation" not in result.stderr, result.stderr
        return result

    return run
