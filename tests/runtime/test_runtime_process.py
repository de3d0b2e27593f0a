"""Processes: exit, fork, caches on disk, missing drivers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RADEON_DRIVER = Path("/usr/share/vulkan/icd.d/radeon_icd.json")

USE_A_PLAN = """
import numpy as np
from device_memory import address, allocate, chain, chain_result, chain_values, get, put
device = runtime.device(0, {path!r})
data = np.arange(1000, dtype=np.float32)
inputs = [put(device, data), put(device, data)]
compiled = device.build_plan(chain(3))
outputs = compiled.run([address(c) for c in inputs], chain_values(1000))
assert np.allclose(get(device, outputs[0], 1000), chain_result(data, data, 3))
"""


@pytest.mark.parametrize("first", ["", "import torch"])
def test_exit_with_live_tensors_and_plans_is_clean(
    run_script: Callable[..., Any], first: str
) -> None:
    source = USE_A_PLAN.format(path=None)
    source += "compiled.run([address(c) for c in inputs], chain_values(1000))\n"
    result = run_script(f"{first}\n{source}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stderr == ""


def test_exit_in_the_middle_of_other_threads_is_clean(run_script: Callable[..., Any]) -> None:
    run_script(
        USE_A_PLAN.format(path=None)
        + """
import threading, time
def work():
    while True:
        try:
            out = compiled.run([address(c) for c in inputs], chain_values(1000))
            get(device, out[0], 1000)
        except VulkanError:
            return
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    )


def test_after_shutdown_calls_fail_and_deleters_do_not(run_script: Callable[..., Any]) -> None:
    run_script(
        USE_A_PLAN.format(path=None)
        + """
runtime.shutdown()
for call in (device.synchronize, lambda: allocate(device, 4), lambda: runtime.device(0),
             runtime.physical_devices, lambda: compiled.run([0, 0], chain_values(1))):
    try:
        call()
    except VulkanError as error:
        assert "shut down" in str(error), error
    else:
        raise AssertionError("a call succeeded after shutdown")
del outputs, inputs, compiled, device
runtime.shutdown()
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_told_what_to_do(run_script: Callable[..., Any]) -> None:
    run_script(
        USE_A_PLAN.format(path=None)
        + """
import os, sys
is_software = device.profile.device_type == "cpu"
child = os.fork()
if child == 0:
    for call in (device.synchronize, device.query, lambda: allocate(device, 4),
                 lambda: get(device, outputs[0], 1000), runtime.physical_devices,
                 lambda: runtime.device(0), lambda: device.build_plan(chain(1)),
                 lambda: compiled.run([0, 0], chain_values(1))):
        try:
            call()
        except VulkanError as error:
            assert "forked process" in str(error) and "spawn" in str(error), error
        else:
            os._exit(3)
    del outputs, inputs, compiled, device, call
    # An orderly exit, with all its finalisers. Drivers of real GPUs may wait in theirs for threads
    # that a forked process does not have; multiprocessing's workers leave through os._exit anyway.
    sys.exit(0) if is_software else os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert np.allclose(get(device, outputs[0], 1000), chain_result(data, data, 3))
"""
    )


def test_the_pipeline_cache_is_written_and_read(
    run_script: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "new" / "pipelines.bin"
    run_script(USE_A_PLAN.format(path=str(path)) + "device.save_pipeline_cache()\n")
    assert path.stat().st_size > 24
    assert [entry.name for entry in path.parent.iterdir()] == ["pipelines.bin"]
    run_script(
        USE_A_PLAN.format(path=str(path))
        + "assert device.counters()['pipeline_caches_dropped'] == 0\n"
    )


@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied", "foreign"])
def test_a_damaged_pipeline_cache_is_dropped(
    run_script: Callable[..., Any], tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "pipelines.bin"
    run_script(USE_A_PLAN.format(path=str(path)))  # written at exit
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-1] ^= 0xFF
    elif damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "emptied":
        content.clear()
    else:
        content = bytearray(b"not a pipeline cache at all, but long enough to be one")
    path.write_bytes(content)
    run_script(
        USE_A_PLAN.format(path=str(path))
        + "assert device.counters()['pipeline_caches_dropped'] == 1\n"
    )
    run_script(
        USE_A_PLAN.format(path=str(path))
        + "assert device.counters()['pipeline_caches_dropped'] == 0\n"
    )


def test_another_drivers_cache_is_dropped(run_script: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "pipelines.bin"
    run_script(USE_A_PLAN.format(path=str(path)))
    content = bytearray(path.read_bytes())
    content[24 + 16] ^= 0xFF  # the UUID in the driver's header; the checksum is made to fit
    checksum = 14695981039346656037
    for byte in content[24:]:
        checksum = (checksum ^ byte) * 1099511628211 % 2**64
    content[16:24] = checksum.to_bytes(8, sys.byteorder)
    path.write_bytes(content)
    run_script(
        USE_A_PLAN.format(path=str(path))
        + "assert device.counters()['pipeline_caches_dropped'] == 1\n"
    )


def test_an_unwritable_pipeline_cache_is_reported(
    run_script: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "pipelines.bin"
    run_script(
        USE_A_PLAN.format(path=str(path))
        + """
try:
    device.save_pipeline_cache()
except VulkanError as error:
    assert "could not be written" in str(error), error
else:
    raise AssertionError("writing below a file succeeded")
"""
    )


def test_without_a_driver_the_error_says_what_to_install(
    run_script: Callable[..., Any], tmp_path: Path
) -> None:
    run_script(
        """
try:
    found = runtime.physical_devices()
    assert found == [], found
except VulkanError as error:
    assert "driver" in str(error), error
""",
        VK_DRIVER_FILES=str(tmp_path / "none.json"),
        VK_ICD_FILENAMES=str(tmp_path / "none.json"),
    )


def test_torch_index_is_carried_by_tensors(run_script: Callable[..., Any]) -> None:
    run_script(
        """
from device_memory import allocate, tensor_head
device = runtime.device(0, None, 5)
capsule = allocate(device, 4)
assert tensor_head(capsule).device_id == device.index == 5
assert device.profile.index == 0
"""
    )


@pytest.mark.skipif(not RADEON_DRIVER.exists(), reason="Mesa's Radeon driver is not installed")
def test_null_hardware_compiles_and_reports(run_script: Callable[..., Any]) -> None:
    run_script(
        """
from device_memory import address, allocate, chain, chain_values, get, kernels
device = runtime.device(0)
assert device.profile.null_hardware and device.profile.name.endswith("(RADV NAVI10)")
(report,) = device.pipeline_statistics(kernels(), "scale", 32)
assert report["subgroup_size"] == 32
assert report["statistics"]["Spilled VGPRs"] == 0
assert any("s_endpgm" in text for text in report["representations"].values())
compiled = device.build_plan(chain(3))
outputs = compiled.run([1, 2], chain_values(64))
device.fill(address(outputs[0]), 256, b"\\0")
device.synchronize()
try:
    get(device, outputs[0], 1)
except VulkanError as error:
    assert "executes nothing" in str(error)
else:
    raise AssertionError("null hardware returned data")
""",
        VK_DRIVER_FILES=str(RADEON_DRIVER),
        RADV_FORCE_FAMILY="navi10",
        TORCHVK_VALIDATION="0",
    )


def test_statistics_need_the_extension(device: Any) -> None:
    from device_memory import kernels

    from torchvk_compile import errors

    if device.profile.pipeline_executable_properties:
        pytest.skip("this device offers VK_KHR_pipeline_executable_properties")
    with pytest.raises(errors.VulkanError, match="VK_KHR_pipeline_executable_properties"):
        device.pipeline_statistics(kernels(), "scale")
