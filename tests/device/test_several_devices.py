"""Two devices in one process. The driver file is loaded twice, under two names, to have two."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the loader's variables")


@pytest.fixture
def two_devices(vk: torch.device, tmp_path: Path) -> dict[str, str]:
    drivers = os.environ.get("VK_DRIVER_FILES", "").split(os.pathsep)
    if len(drivers) != 1 or not Path(drivers[0]).is_file():
        pytest.skip("needs one driver file in VK_DRIVER_FILES")
    twin = tmp_path / "twin.json"
    shutil.copy(drivers[0], twin)
    return {"VK_DRIVER_FILES": os.pathsep.join([drivers[0], str(twin)])}


def run(script: str, environment: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_tensors_move_between_devices(two_devices: dict[str, str]) -> None:
    run(
        """
        import torch
        assert torch.vk.device_count() == torch.accelerator.device_count() == 2
        here = torch.arange(6.0, device="vk:0")
        there = here.to("vk:1")
        assert str(there.device) == "vk:1" and there.tolist() == here.tolist()
        assert str((there + 1).device) == "vk:1" and (there + 1).tolist()[5] == 6.0
        back = torch.empty(3, 2, device="vk:0").copy_(there.view(2, 3).t())
        assert back.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
        assert there.to("vk:0", torch.int64).tolist() == [0, 1, 2, 3, 4, 5]
        """,
        two_devices,
    )


def test_mixed_devices_are_refused(two_devices: dict[str, str]) -> None:
    run(
        """
        import torch
        try:
            torch.ones(2, device="vk:0") + torch.ones(2, device="vk:1")
        except RuntimeError as error:
            assert "vk:1 and vk:0" in str(error), error
        else:
            raise AssertionError("no error")
        """,
        two_devices,
    )


def test_current_device(two_devices: dict[str, str]) -> None:
    run(
        """
        import threading, torch
        with torch.vk.device(1):
            assert str(torch.empty(1, device="vk").device) == "vk:1"
            assert str(torch.ones(1).vk().device) == "vk:1"
            seen = []
            thread = threading.Thread(target=lambda: seen.append(torch.vk.current_device()))
            thread.start()
            thread.join()
            assert seen == [0], seen
        assert torch.vk.current_device() == 0
        torch.vk.set_device("vk:1")
        assert torch.vk.current_device() == 1
        """,
        two_devices,
    )


def test_each_device_has_its_own_memory_and_random_state(two_devices: dict[str, str]) -> None:
    run(
        """
        import torch
        first = torch.empty(1 << 20, device="vk:0")
        second = torch.empty(1 << 10, device="vk:1")
        assert torch.vk.memory_allocated(0) >= 4 << 20 > torch.vk.memory_allocated(1) > 0
        torch.manual_seed(3)
        one, other = torch.rand(4, device="vk:0"), torch.rand(4, device="vk:1")
        assert one.tolist() == other.tolist()
        assert len(torch.vk.get_rng_state_all()) == 2
        """,
        two_devices,
    )


def test_the_chosen_device_is_vk_0(two_devices: dict[str, str]) -> None:
    run(
        """
        import torch
        assert torch.vk.device_count() == 1
        assert torch.vk.get_device_properties().index == 1
        tensor = torch.arange(3.0, device="vk")
        assert str(tensor.device) == "vk:0" and str((tensor + 1).device) == "vk:0"
        leaf = torch.ones(2, device="vk", requires_grad=True)
        (leaf * 3).sum().backward()
        assert leaf.grad.tolist() == [3.0, 3.0]
        """,
        two_devices | {"TORCHVK_DEVICE": "1"},
    )
