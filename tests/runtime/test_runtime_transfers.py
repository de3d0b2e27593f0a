"""Uploads, downloads, copies and fills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_memory import address, allocate, get, put

from torchvk_compile import errors

MIB = 1 << 20


# 5 MiB is more than a staging chunk, 40 MiB more than the whole staging ring.
@pytest.mark.parametrize("nbytes", [1, 3, 511, 4096, 5 * MIB + 1, 40 * MIB + 7])
def test_what_was_uploaded_is_downloaded(device: Any, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    capsule = put(device, data)
    assert np.array_equal(get(device, capsule, nbytes, np.uint8), data)


def test_upload_takes_the_data_at_once(device: Any) -> None:
    data = np.arange(1000, dtype=np.int32)
    capsule = put(device, data)
    data[:] = -1
    assert np.array_equal(get(device, capsule, 1000, np.int32), np.arange(1000))


def test_transfers_keep_their_order(device: Any) -> None:
    capsule = allocate(device, 4)
    for value in range(200):
        number = np.array([value], np.int32)
        device.upload(address(capsule), number.ctypes.data, 4)
    assert get(device, capsule, 1, np.int32)[0] == 199


def test_small_uploads_share_a_submission(device: Any) -> None:
    device.synchronize()
    before = device.counters()
    capsules = [put(device, np.full(16, value, np.int32)) for value in range(20)]
    device.synchronize()
    after = device.counters()
    assert after["uploads"] - before["uploads"] == 20
    assert after["submissions"] - before["submissions"] == 1
    assert [int(get(device, c, 16, np.int32)[7]) for c in capsules] == list(range(20))


def test_query_tells_when_work_is_done(device: Any) -> None:
    device.synchronize()
    assert device.query()
    put(device, np.zeros(16, np.int32))
    device.query()
    device.synchronize()
    assert device.query()


def test_copy_between_tensors(device: Any) -> None:
    data = np.random.default_rng(0).random(100_003).astype(np.float32)
    source, target = put(device, data), allocate(device, data.nbytes)
    device.copy(address(target), address(source), data.nbytes)
    assert np.array_equal(get(device, target, data.size), data)


@pytest.mark.parametrize("shift", [-4000, -4, -1, 0, 1, 4, 4000])
def test_overlapping_copies_behave_like_memmove(device: Any, shift: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 100_000, np.uint8)
    capsule = put(device, data)
    source, target = 5000, 5000 + shift
    device.copy(address(capsule) + target, address(capsule) + source, 80_000)
    expected = data.copy()
    expected[target : target + 80_000] = data[source : source + 80_000]
    assert np.array_equal(get(device, capsule, data.size, np.uint8), expected)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 6])
def test_fills_of_every_pattern_and_alignment(device: Any, width: int, offset: int) -> None:
    size = 300_000
    generator = np.random.default_rng(width)
    pattern = generator.integers(0, 256, width, np.uint8)
    capsule = allocate(device, size)
    for repeats in (1, 3, 101, 17_000):
        device.fill(address(capsule), size, b"\xee")
        device.fill(address(capsule) + offset, repeats * width, pattern.tobytes())
        expected = np.full(size, 0xEE, np.uint8)
        expected[offset : offset + repeats * width] = np.tile(pattern, repeats)
        actual = get(device, capsule, size, np.uint8)
        assert np.array_equal(actual, expected), f"{repeats} times {width} bytes at {offset}"


def test_fill_refuses_odd_patterns(device: Any) -> None:
    capsule = allocate(device, 64)
    with pytest.raises(errors.VulkanError, match="1, 2, 4, 8 or 16 bytes"):
        device.fill(address(capsule), 6, b"abc")
    with pytest.raises(errors.VulkanError, match="not a multiple"):
        device.fill(address(capsule), 6, b"abcd")


def test_transfers_of_nothing_do_nothing(device: Any) -> None:
    device.upload(0, 0, 0)
    device.download(0, 0, 0)
    device.copy(0, 0, 0)
    device.fill(0, 0, b"\0")


def test_a_freed_address_is_refused(device: Any) -> None:
    capsule = allocate(device, 4096)
    freed = address(capsule)
    del capsule
    with pytest.raises(errors.VulkanError, match="freed"):
        get(device, freed, 1)


def test_a_foreign_address_is_refused(device: Any) -> None:
    with pytest.raises(errors.VulkanError, match="0x10 is not memory of this device"):
        get(device, 16, 1)


def test_a_transfer_past_the_end_is_refused(device: Any) -> None:
    capsule = allocate(device, 512)
    with pytest.raises(errors.VulkanError, match="past the end"):
        device.fill(address(capsule), 1024, b"\0")
