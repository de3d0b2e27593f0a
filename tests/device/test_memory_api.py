"""torch.vk's memory functions count tensors, keep a limit, and survive running out."""

from __future__ import annotations

import gc

import pytest
import torch

MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def clean(vk: torch.device) -> None:
    gc.collect()
    torch.vk.synchronize()


def test_allocated_bytes_follow_tensors(vk: torch.device) -> None:
    before = torch.vk.memory_allocated()
    tensor = torch.empty(MEBIBYTE, device=vk)
    assert torch.vk.memory_allocated() - before >= 4 * MEBIBYTE
    view = tensor[10:]
    del tensor
    assert torch.vk.memory_allocated() - before >= 4 * MEBIBYTE
    del view
    assert torch.vk.memory_allocated() == before


def test_peaks(vk: torch.device) -> None:
    torch.vk.reset_peak_memory_stats()
    before = torch.vk.max_memory_allocated()
    tensor = torch.empty(MEBIBYTE, device=vk)
    del tensor
    assert torch.vk.max_memory_allocated() - before >= 4 * MEBIBYTE
    torch.vk.reset_peak_memory_stats()
    assert torch.vk.max_memory_allocated() == torch.vk.memory_allocated()


def test_statistics_have_cudas_names(vk: torch.device) -> None:
    stats = torch.vk.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.vk.memory_allocated()
    assert stats["reserved_bytes.all.current"] == torch.vk.memory_reserved()
    assert torch.vk.memory_reserved() >= torch.vk.memory_allocated()
    free, total = torch.vk.mem_get_info()
    assert 0 < free <= total
    assert "allocated" in torch.vk.memory_summary()


def test_empty_cache_gives_memory_back(vk: torch.device) -> None:
    torch.vk.empty_cache()
    before = torch.vk.memory_reserved()
    tensor = torch.empty(64 * MEBIBYTE, dtype=torch.uint8, device=vk)
    del tensor
    assert torch.vk.memory_reserved() > before
    torch.vk.empty_cache()
    assert torch.vk.memory_reserved() <= before


def test_limit_raises_and_everything_stays_usable(vk: torch.device) -> None:
    torch.vk.empty_cache()
    kept = torch.arange(4.0, device=vk)
    torch.vk.set_memory_limit(torch.vk.memory_reserved() + 8 * MEBIBYTE)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="vk:0"):
            torch.empty(64 * MEBIBYTE, device=vk)
        assert kept.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert torch.ones(3, device=vk).tolist() == [1.0, 1.0, 1.0]
    finally:
        torch.vk.set_memory_limit(None)
    assert torch.zeros(16 * MEBIBYTE, device=vk)[-1].item() == 0.0


def test_impossible_allocation(vk: torch.device) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"vk:0 .* TiB were asked for"):
        torch.empty(1 << 42, device=vk)
    assert torch.ones(2, device=vk).tolist() == [1.0, 1.0]


def test_negative_limit_is_refused(vk: torch.device) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        torch.vk.set_memory_limit(-1)
