"""The device is there after `import torch`, cheaply, and can be chosen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=os.environ | environment,
    )


def test_import_torch_registers_without_loading_the_compiler() -> None:
    run = python(
        "import sys, torch\n"
        "assert torch.device('vk').type == 'vk'\n"
        "heavy = [m for m in ('torch._inductor', 'torch._dynamo', 'jinja2',"
        " 'torchvk_compile._runtime') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    assert run.returncode == 0, run.stderr


def test_registration_is_idempotent(vk: torch.device) -> None:
    import torchvk_compile.device

    torchvk_compile.device.register()
    assert torch.zeros(1, device=vk).item() == 0.0


def test_accelerator(vk: torch.device) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("vk")
    assert torch.accelerator.device_count() == torch.vk.device_count() >= 1
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(0)


def test_device_module(vk: torch.device) -> None:
    assert torch.vk.is_available()
    assert torch.vk.current_device() == 0
    assert torch.vk.get_device_name() == torch.vk.get_device_properties(0).name
    assert torch.vk.get_device_capability("vk:0") >= (1, 2)
    with torch.vk.device(0), torch.vk.device_of(torch.ones(1, device=vk)):
        assert torch.empty(1, device="vk").device == vk
    torch.vk.set_device("vk:0")
    torch.vk.synchronize()
    assert torch.vk.current_stream().query()
    assert torch.get_device_module("vk") is torch.vk


def test_events_measure_time(vk: torch.device) -> None:
    start, end = torch.vk.Event(enable_timing=True), torch.vk.Event(enable_timing=True)
    start.record()
    torch.ones(1000, device=vk).mul_(2)
    end.record()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0


def test_device_is_chosen_by_index_and_by_name(vk: torch.device) -> None:
    name = torch.vk.get_device_name()
    code = "import torch; print(torch.vk.get_device_name(), torch.vk.device_count())"
    index = str(torch.vk.get_device_properties().index)
    for wanted in (index, name.split()[0].upper()):
        run = python(code, TORCHVK_DEVICE=wanted)
        assert run.stdout.strip() == f"{name} 1", run.stderr


def test_unknown_device_name_lists_the_known_ones(vk: torch.device) -> None:
    run = python(
        "import torch\nassert not torch.vk.is_available()\ntorch.empty(1, device='vk')\n",
        TORCHVK_DEVICE="no such card",
    )
    assert "matches no Vulkan device" in run.stderr
    assert torch.vk.get_device_name() in run.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the loader's variable is tested on Linux")
def test_no_driver_is_one_clear_error() -> None:
    run = python(
        "import torch\n"
        "assert not torch.vk.is_available() and torch.vk.device_count() == 0\n"
        "torch.ones(2).to('vk')\n",
        VK_DRIVER_FILES="/nonexistent.json",
        VK_ICD_FILENAMES="/nonexistent.json",
    )
    assert "VulkanError" in run.stderr
    assert "driver" in run.stderr


def test_plain_torch_compile_compiles_for_the_device(vk: torch.device) -> None:
    run = python(
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).to('vk')\n"
        "inputs = torch.randn(5, 4)\n"
        "outputs = torch.compile(model)(inputs.to('vk'))\n"
        "outputs.sum().backward()\n"
        "torch.testing.assert_close(outputs.cpu(), model.cpu()(inputs))\n"
    )
    assert run.returncode == 0, run.stderr


def test_inductor_still_knows_other_devices() -> None:
    """In a process whose first compilation is TorchVK's: torch registers its own devices lazily."""
    source = """
import torch
torch.compile(lambda x: x + 1, backend="torchvk")(torch.ones(3, device="vk"))
from torch._inductor.codegen.common import get_device_op_overrides
print(type(get_device_op_overrides("cuda")).__name__, type(get_device_op_overrides("cpu")).__name__)
"""
    result = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=300
    )
    assert result.stdout.split() == ["CUDADeviceOpOverrides", "CpuDeviceOpOverrides"]
