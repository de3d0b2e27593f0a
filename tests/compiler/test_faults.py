"""What goes wrong says so once, clearly, and leaves everything usable."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchvk_compile
from torchvk_compile.errors import DeviceAssertError, OutOfMemoryError, UnsupportedOperatorError


def test_an_operator_without_a_kernel_is_named(vk: torch.device) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).abs() + 1

    x = torch.eye(3)
    with pytest.raises(UnsupportedOperatorError, match=r"linalg_eig"):
        torch.compile(function, backend="torchvk")(x.to(vk))
    torch.testing.assert_close((x.to(vk) + 1).cpu(), x + 1)


def test_an_allowed_fallback_is_counted(vk: torch.device) -> None:
    x = torch.eye(3) * 2
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
