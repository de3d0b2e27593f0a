"""Copies between host and device keep every bit, whatever the dtype or layout."""

from __future__ import annotations

import pytest
import torch

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def sample(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(1, 21).reshape(4, 5).to(dtype)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(
        one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip_keeps_bytes_and_strides(vk: torch.device, dtype: torch.dtype) -> None:
    for host in (sample(dtype), sample(dtype).t(), sample(dtype)[0, 0], sample(dtype)[:0]):
        there = host.to(vk)
        back = there.cpu()
        assert there.device == vk
        assert there.stride() == host.stride()
        assert same_bytes(back, host)


def test_strided_host_source(vk: torch.device) -> None:
    host = torch.arange(24.0).reshape(4, 6)
    assert torch.equal(host[:, ::2].to(vk).cpu(), host[:, ::2])
    assert torch.equal(host[1:, 2].to(vk).cpu(), host[1:, 2])


def test_strided_device_target_leaves_its_gaps_alone(vk: torch.device) -> None:
    host = torch.arange(1.0, 25.0).reshape(4, 6)
    target = torch.zeros(4, 6, device=vk)
    target[:, ::2].copy_(host[:, ::2])
    expected = torch.zeros(4, 6)
    expected[:, ::2] = host[:, ::2]
    assert torch.equal(target.cpu(), expected)


def test_strided_device_source(vk: torch.device) -> None:
    host = torch.arange(24.0).reshape(4, 6)
    assert torch.equal(host.to(vk)[1:, ::2].cpu(), host[1:, ::2])
    large = torch.arange(400 * 400.0).reshape(400, 400)
    assert torch.equal(large.to(vk)[:, ::100].cpu(), large[:, ::100])


@pytest.mark.parametrize("target", [torch.float64, torch.float16, torch.int32, torch.bool], ids=str)
def test_dtype_changes_on_the_way(vk: torch.device, target: torch.dtype) -> None:
    host = torch.tensor([[0.0, 1.5, -2.5], [3.25, 4.0, 100.0]])
    assert torch.equal(
        torch.empty(2, 3, dtype=target, device=vk).copy_(host).cpu(), host.to(target)
    )
    assert torch.equal(torch.empty(2, 3, dtype=target).copy_(host.to(vk)), host.to(target))
    assert torch.equal(host.to(vk).to(target).cpu(), host.to(target))
    assert torch.equal(host.to(vk, target).cpu(), host.to(target))


def test_broadcast(vk: torch.device) -> None:
    row = torch.arange(5.0)
    expected = row.expand(4, 5)
    assert torch.equal(torch.empty(4, 5, device=vk).copy_(row).cpu(), expected)
    assert torch.equal(torch.empty(4, 5, device=vk).copy_(row.to(vk)).cpu(), expected)
    assert torch.equal(torch.empty(4, 5).copy_(row.to(vk)), expected)


def test_copy_to_itself_changes_nothing(vk: torch.device) -> None:
    tensor = torch.arange(6.0, device=vk)
    tensor.copy_(tensor)
    tensor.copy_(tensor.view(6))
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_non_blocking_copies_are_safe(vk: torch.device) -> None:
    host = torch.arange(1000.0)
    there = host.to(vk, non_blocking=True)
    host.zero_()
    back = there.to("cpu", non_blocking=True)
    assert torch.equal(back, torch.arange(1000.0))


def test_memory_format_of_conversions(vk: torch.device) -> None:
    host = torch.arange(48.0).reshape(2, 3, 2, 4)
    there = host.to(vk).to(memory_format=torch.channels_last)
    assert there.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(there.cpu(), host)
    assert there.to(torch.float16).is_contiguous(memory_format=torch.channels_last)
    assert there.clone().stride() == there.stride()
    assert there.contiguous().stride() == host.stride()


def test_conjugate_views_are_resolved(vk: torch.device) -> None:
    host = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(host.conj().to(vk).cpu(), host.conj().resolve_conj())
    assert torch.equal(host.to(vk).conj().cpu().resolve_conj(), host.conj().resolve_conj())


def test_scalars_come_back_as_python_numbers(vk: torch.device) -> None:
    assert torch.tensor(3.5, device=vk).item() == 3.5
    assert torch.tensor(2**40 + 1, device=vk).item() == 2**40 + 1
    assert torch.tensor(True, device=vk).item() is True
    assert torch.tensor(1 - 2j, device=vk).item() == 1 - 2j
    assert float(torch.tensor(0.1, dtype=torch.float64, device=vk)) == 0.1
    assert [int(x) for x in torch.arange(3, device=vk)] == [0, 1, 2]


def test_copies_record_gradients(vk: torch.device) -> None:
    leaf = torch.arange(3.0, requires_grad=True)
    (leaf.to(vk) * 2).cpu().sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0, 2.0, 2.0]
    assert leaf.grad.device.type == "cpu"
