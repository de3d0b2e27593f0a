"""What goes wrong says so once, clearly, and leaves everything usable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import torchvk_compile
from torchvk_compile.errors import (
    DeviceAssertError,
    DeviceLostError,
    OutOfMemoryError,
    UnsupportedOperatorError,
)


def test_an_operator_without_a_kernel_is_named(vk: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).abs() + 1

    x = torch.eye(3, dtype=torch.complex64)
    with pytest.raises(UnsupportedOperatorError, match=r"linalg_eig.*called at .*test_faults.py:"):
        torch.compile(function, backend="torchvk")(x.to(vk))
    torch.testing.assert_close((x.to(vk) + 1).cpu(), x + 1)


def test_a_lost_device_names_what_it_was_given_last(vk: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sinh().sum(1)

    torch.compile(function, backend="torchvk")(torch.ones(3, 4, device=vk))
    message = str(DeviceLostError("vkQueueSubmit failed."))
    assert message.startswith("vkQueueSubmit failed. Submitted last: ")
    newest = message.partition("Submitted last: ")[2].partition(";")[0]
    assert "sinh" in newest
    assert "test_faults.py:" in newest


def test_an_allowed_fallback_is_counted(vk: torch.device) -> None:
    x = torch.eye(3, dtype=torch.complex64) * 2
    torch._dynamo.reset()
    with torchvk_compile.config.patch(cpu_fallback="allow"), torchvk_compile.audit() as audit:
        result = torch.compile(lambda x: torch.linalg.eigvals(x * 1).abs() + 1, backend="torchvk")(
            x.to(vk)
        )
    torch.testing.assert_close(result.cpu(), torch.full((3,), 3.0))
    assert not audit.gpu_only
    assert "linalg_eig" in audit.report()


@pytest.mark.parametrize("index", [20, -21, 2**40])
def test_an_index_out_of_range_is_reported(vk: torch.device, index: int) -> None:
    table = torch.randn(20, 4)
    compiled = torch.compile(lambda t, i: t[i] + 1, backend="torchvk")
    on_device = table.to(vk)
    with pytest.raises(DeviceAssertError, match="index out of range") as raised:
        compiled(on_device, torch.tensor([0, index]).to(vk))
        torch.vk.synchronize()  # type: ignore[attr-defined]
    assert isinstance(raised.value, IndexError)
    good = torch.tensor([3, -1])
    torch.testing.assert_close(compiled(on_device, good.to(vk)).cpu(), table[good] + 1)


def test_a_class_out_of_range_is_reported(vk: torch.device) -> None:
    compiled = torch.compile(F.cross_entropy, backend="torchvk")
    with pytest.raises(DeviceAssertError):
        compiled(torch.randn(4, 5).to(vk), torch.tensor([0, 1, 5, 2]).to(vk)).item()


def test_mixed_devices_are_refused(vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.compile(lambda x, y: x + y, backend="torchvk")(torch.randn(4).to(vk), torch.randn(4))


def test_wrong_shapes_are_refused_as_on_the_cpu(vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"shape|size"):
        torch.compile(lambda x, y: x @ y, backend="torchvk")(
            torch.randn(4, 3).to(vk), torch.randn(4, 3).to(vk)
        )


def test_out_of_memory_leaves_everything_usable(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: (x + 1).expand(64, -1).contiguous() * 2, backend="torchvk")
    x = torch.randn(1_000_000)
    on_device = x.to(vk)
    torch.vk.empty_cache()  # type: ignore[attr-defined]
    torch.vk.set_memory_limit(64 * 2**20)  # type: ignore[attr-defined]
    try:
        with pytest.raises(OutOfMemoryError):
            compiled(on_device)
    finally:
        torch.vk.set_memory_limit(0)  # type: ignore[attr-defined]
    torch.testing.assert_close(compiled(on_device).cpu(), ((x + 1).expand(64, -1) * 2))


def test_an_unknown_mode_is_refused(vk: torch.device) -> None:
    with pytest.raises(Exception, match="mode"):
        torch.compile(lambda x: x + 1, backend="torchvk", mode="fastest")(torch.ones(2, device=vk))


def _run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_refused_also_for_an_operator_that_is_new_to_it() -> None:
    done = _run(
        """
import os, torch
x = torch.ones(3).to("vk")
child = os.fork()
if child == 0:
    try:
        torch.sin(x)
    except RuntimeError as error:
        os._exit(0 if "forked process" in str(error) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
"""
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_a_cache_directory_everything_still_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    script = """
import torch
print(torch.compile(lambda x: x + 1, backend="torchvk")(torch.ones(2, device="vk")).tolist())
"""
    done = _run(script, TORCHVK_CACHE_DIR=str(tmp_path / "file"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[2.0, 2.0]"
    assert "TORCHVK_CACHE_DIR" in done.stderr
