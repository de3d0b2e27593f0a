"""Wrong calls give one clear exception each, and leave tensors and caches usable."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchvk_compile import config
from torchvk_compile.errors import DeviceAssertError, UnsupportedOperatorError, VulkanError


@pytest.fixture(autouse=True)
def still_works(vk: torch.device):  # type: ignore[no-untyped-def]
    tensor = torch.arange(4.0, device=vk)
    yield
    assert (tensor + 1).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_mixed_devices(vk: torch.device) -> None:
    there, here = torch.ones(2, 2, device=vk), torch.ones(2, 2)
    for call in (lambda: there + here, lambda: there @ here, lambda: there.add_(here)):
        with pytest.raises(RuntimeError, match=r"same device.*vk:0 and cpu"):
            call()


def test_cpu_scalars_may_join(vk: torch.device) -> None:
    assert (torch.ones(2, device=vk) + torch.tensor(2.5)).tolist() == [3.5, 3.5]
    assert (torch.ones(2, dtype=torch.int32, device=vk) * torch.tensor(3)).dtype is torch.int32
    with pytest.raises(RuntimeError, match="same device"):
        torch.tensor(2.0).add_(torch.tensor(1.0, device=vk))


def test_wrong_shapes(vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match="2, 3"):
        torch.ones(4, 2, 3, device=vk) + torch.ones(5, 3, device=vk)
    with pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 3, device=vk), torch.ones(2, 3, device=vk))
    with pytest.raises(RuntimeError, match="size"):
        torch.ones(3, device=vk).copy_(torch.ones(4))


def test_wrong_dimension(vk: torch.device) -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones(2, device=vk).sum(3)


def test_missing_device(vk: torch.device) -> None:
    with pytest.raises(VulkanError, match=r"no device vk:7.*vk:0"):
        torch.empty(2, device="vk:7")


def test_writing_to_an_expanded_tensor(vk: torch.device) -> None:
    expanded = torch.zeros(1, device=vk).expand(3)
    for call in (lambda: expanded.add_(1.0), lambda: expanded.copy_(torch.ones(3))):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()


def test_layouts_and_dtypes_the_device_does_not_have(vk: torch.device) -> None:
    with pytest.raises(NotImplementedError, match="vk tensors are dense"):
        torch.empty(2, layout=torch.sparse_coo, device=vk)
    with pytest.raises(NotImplementedError, match="Quantizedvk"):
        torch.empty(2, dtype=torch.quint8, device=vk)
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1, device=vk)


def test_fill_value_out_of_range(vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(2, dtype=torch.int8, device=vk).fill_(1000)


def test_unsupported_operator_names_itself(vk: torch.device) -> None:
    tensor = torch.eye(3, dtype=torch.complex64, device=vk)
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.linalg_eig.*complex64.*3"):
        torch.linalg.eig(tensor)


def test_unsupported_operator_may_run_on_the_cpu_where_allowed(vk: torch.device) -> None:
    host = torch.tensor([[2.0, 1.0j], [-1.0j, 2.0]])
    with config.patch(cpu_fallback="allow"):
        values, vectors = torch.linalg.eig(host.to(vk))
        assert values.device == vk and vectors.device == vk
        torch.testing.assert_close(values.cpu(), torch.linalg.eig(host)[0])
    with pytest.raises(UnsupportedOperatorError):
        torch.linalg.eig(host.to(vk))


def test_gradients_through_a_mixed_call_are_refused_before_anything_changes(
    vk: torch.device,
) -> None:
    there = torch.ones(2, device=vk, requires_grad=True)
    with pytest.raises(RuntimeError, match="same device"):
        (there * torch.ones(2)).sum().backward()
    assert there.grad is None


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 30), (1 << 60,)])
def test_sizes_beyond_any_memory(shape: tuple[int, ...], vk: torch.device) -> None:
    for call in (torch.empty, torch.zeros):
        with pytest.raises(torch.OutOfMemoryError):
            call(shape, device=vk)


@pytest.mark.parametrize("message", ["the sum is too small", None])
@pytest.mark.parametrize("compiled", [False, True])
def test_asynchronous_assertions(message: str | None, compiled: bool, vk: torch.device) -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        condition = x.sum() > 100
        if message is None:
            torch._assert_async(condition)
        else:
            torch._assert_async(condition, message)
        return x + 1

    function = torch.compile(checked, backend="torchvk", fullgraph=True) if compiled else checked
    function(torch.full((4,), 50.0, device=vk))
    torch.vk.synchronize()
    function(torch.ones(4, device=vk))
    with pytest.raises(DeviceAssertError) as caught:
        torch.vk.synchronize()
    assert (message or "Expected Tensor with single nonzero value") in str(caught.value)
    assert ("test_bad_input.py:" in str(caught.value)) == compiled


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a @ b,
        lambda a, b: torch.nn.functional.linear(a, b, a[0]),
        lambda a, b: torch.nn.functional.conv2d(a[None, None], b[None, None]),
    ],
)
def test_dtypes_are_not_mixed(
    function: Callable[..., torch.Tensor], compiled: bool, vk: torch.device
) -> None:
    if compiled:
        function = torch.compile(function, backend="torchvk")
    a = torch.ones(2, 2, device=vk)
    with pytest.raises(Exception, match=r"same.*float32.*float16|float32.*float16.*same"):
        function(a, a.half())


def test_misspelt_function_of_the_device_module() -> None:
    with pytest.raises(AttributeError, match="did you mean 'memory_allocated'"):
        torch.vk.memory_alocated()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda x: torch.bernoulli(x + 1), "probabilities in"),
        (lambda x: x.bernoulli_(-x), "probabilities in"),
        (lambda x: torch.bernoulli(x, 1.5), "got p=1.5"),
        (lambda x: torch.normal(x, -x), "std >= 0"),
        (lambda x: torch.normal(x, -1.0), "std >= 0"),
    ],
)
def test_impossible_distributions(
    vk: torch.device, draw: Callable[[torch.Tensor], torch.Tensor], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        draw(torch.ones(4, device=vk))
        torch.vk.synchronize()
