"""The caching allocator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from device_memory import address, allocate, get, put, tensor_head

MIB = 1 << 20


@pytest.fixture
def fresh(device: Any) -> Iterator[Any]:
    """The device with an empty cache and no limit."""
    device.synchronize()
    device.empty_cache()
    device.set_memory_limit(0)
    yield device
    device.set_memory_limit(0)


def reserved(device: Any) -> int:
    return device.memory_stats()["reserved_bytes.all.current"]


def allocated(device: Any) -> int:
    return device.memory_stats()["allocated_bytes.all.current"]


def test_capsules_describe_the_tensor(device: Any) -> None:
    capsule = device.empty((2, 3), (3, 1), 2, 32, 24)
    head = tensor_head(capsule)
    assert (head.device_type, head.device_id) == (12, device.index)
    assert (head.ndim, head.code, head.bits, head.lanes) == (2, 2, 32, 1)
    assert (head.shape[:2], head.strides[:2]) == ([2, 3], [3, 1])
    assert head.data != 0


def test_an_empty_tensor_has_no_memory(device: Any) -> None:
    before = allocated(device)
    capsule = device.empty((0,), (1,), 2, 32, 0)
    assert address(capsule) == 0
    assert allocated(device) == before


def test_shape_and_strides_must_match(device: Any) -> None:
    with pytest.raises(ValueError, match="shape and strides"):
        device.empty((2, 3), (1,), 2, 32, 24)


def test_addresses_are_aligned_and_apart(device: Any) -> None:
    sizes = [1, 7, 512, 513, 4096, 100_000, 3 * MIB, 12 * MIB]
    capsules = [allocate(device, size) for size in sizes]
    places = sorted((address(c), size) for c, size in zip(capsules, sizes, strict=True))
    assert all(place % 256 == 0 for place, _ in places)
    for (place, size), (following, _) in itertools.pairwise(places):
        assert place + size <= following


def test_freed_memory_is_reused_at_once(fresh: Any) -> None:
    capsule = allocate(fresh, 5 * MIB)
    place = address(capsule)
    del capsule
    segments = fresh.memory_stats()["num_device_alloc"]
    assert address(allocate(fresh, 5 * MIB)) == place
    assert fresh.memory_stats()["num_device_alloc"] == segments


def test_freed_neighbours_join(fresh: Any) -> None:
    parts = [allocate(fresh, 4 * MIB) for _ in range(5)]
    held = reserved(fresh)
    start = min(address(part) for part in parts)
    del parts
    assert address(allocate(fresh, 20 * MIB)) == start
    assert reserved(fresh) == held


def test_reuse_follows_the_stream(fresh: Any) -> None:
    first = put(fresh, np.full(MIB, 1, np.float32))
    second = allocate(fresh, 4 * MIB)
    fresh.copy(address(second), address(first), 4 * MIB)
    place = address(first)
    del first  # the copy may still be pending
    third = put(fresh, np.full(MIB, 3, np.float32))
    assert address(third) == place
    assert np.all(get(fresh, second, MIB) == 1)
    assert np.all(get(fresh, third, MIB) == 3)


def test_statistics_follow_allocations(fresh: Any) -> None:
    fresh.reset_peak_memory_stats()
    base = allocated(fresh)
    capsule = allocate(fresh, 3 * MIB + 1)
    stats = fresh.memory_stats()
    assert stats["allocated_bytes.all.current"] - base >= 3 * MIB + 1
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"]
    del capsule
    after = fresh.memory_stats()
    assert after["allocated_bytes.all.current"] == base
    assert after["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"]
    fresh.reset_peak_memory_stats()
    assert fresh.memory_stats()["allocated_bytes.all.peak"] == base
    fresh.reset_accumulated_memory_stats()
    assert fresh.memory_stats()["allocation.all.allocated"] == 0


def test_empty_cache_returns_memory(fresh: Any) -> None:
    before = reserved(fresh)
    capsule = allocate(fresh, 30 * MIB)
    fresh.fill(address(capsule), 30 * MIB, b"\1")
    del capsule
    assert reserved(fresh) >= before + 30 * MIB
    fresh.empty_cache()
    assert reserved(fresh) == before


def test_out_of_memory_under_a_limit_says_what_is_used(fresh: Any) -> None:
    limit = reserved(fresh) + 40 * MIB
    fresh.set_memory_limit(limit)
    assert fresh.memory_limit() == limit
    held = put(fresh, np.full(4 * MIB, 7, np.float32))  # 16 MiB
    failures = fresh.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        allocate(fresh, 64 * MIB)
    text = str(caught.value)
    for expected in ("64.00 MiB were asked for", "set_memory_limit", "allocated", "reserved"):
        assert expected in text, text
    assert fresh.memory_stats()["num_ooms"] == failures + 1
    # Everything stays usable.
    assert np.all(get(fresh, held, 4 * MIB) == 7)
    assert address(allocate(fresh, 4 * MIB)) != 0
    fresh.set_memory_limit(0)
    assert address(allocate(fresh, 64 * MIB)) != 0


def test_cached_memory_is_freed_before_giving_up(fresh: Any) -> None:
    fresh.set_memory_limit(reserved(fresh) + 40 * MIB)
    for size in (22, 24, 26, 28, 30):  # each fits only after the previous segment is gone
        assert address(allocate(fresh, size * MIB)) != 0


def test_mem_get_info_respects_the_limit(fresh: Any) -> None:
    free, total = fresh.mem_get_info()
    assert 0 < free <= total
    fresh.set_memory_limit(reserved(fresh) + 10 * MIB)
    free, total = fresh.mem_get_info()
    assert free <= 10 * MIB
    assert total == fresh.memory_limit()


@pytest.mark.parametrize("nbytes", [1 << 45, (1 << 63) - 1])
def test_a_tensor_larger_than_the_driver_allows_is_explained(fresh: Any, nbytes: int) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="iB were asked for"):
        allocate(fresh, nbytes)
