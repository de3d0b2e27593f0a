"""Placing intermediates in an arena."""

from __future__ import annotations

import itertools
import random

import pytest

from torchvk_compile.plan.memory import ARENA_ALIGNMENT, plan_arena


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def test_buffers_that_never_live_together_share_memory() -> None:
    offsets, total = plan_arena([1024, 1024, 1024], [(0, 1), (2, 3), (4, 5)])
    assert offsets == [0, 0, 0]
    assert total == 1024


def test_a_buffer_is_alive_in_its_last_step() -> None:
    offsets, total = plan_arena([256, 256], [(0, 1), (1, 2)])
    assert offsets[0] != offsets[1]
    assert total == 512


def test_an_empty_buffer_has_an_address_of_its_own() -> None:
    offsets, total = plan_arena([0, 0], [(0, 1), (0, 1)])
    assert offsets[0] != offsets[1]
    assert total == 2 * ARENA_ALIGNMENT


def test_no_buffers_need_no_arena() -> None:
    assert plan_arena([], []) == ([], 0)


@pytest.mark.parametrize("seed", range(20))
def test_random_lifetimes_never_overlap(seed: int) -> None:
    generator = random.Random(seed)
    count = generator.randrange(1, 60)
    sizes = [generator.choice([0, 1, 255, 256, 1000, 5000, 100000]) for _ in range(count)]
    lifetimes = []
    for _ in range(count):
        first = generator.randrange(0, 40)
        lifetimes.append((first, first + generator.randrange(0, 10)))
    offsets, total = plan_arena(sizes, lifetimes)
    for i, j in itertools.combinations(range(count), 2):
        if _overlap(lifetimes[i], lifetimes[j]):
            ends = offsets[i] + max(sizes[i], 1), offsets[j] + max(sizes[j], 1)
            assert ends[0] <= offsets[j] or ends[1] <= offsets[i], (i, j)
    assert all(offset % ARENA_ALIGNMENT == 0 for offset in offsets)
    assert all(offset + size <= total for offset, size in zip(offsets, sizes, strict=True))
