"""Placing intermediates in one arena.

In: sizes and lifetimes. Out: byte offsets and the arena's size. Forbidden: knowing what the buffers hold.
"""

from __future__ import annotations

from collections.abc import Sequence

ARENA_ALIGNMENT = 256
"""Alignment of every buffer in bytes; as much as any Vulkan limit on buffer offsets asks for."""


def plan_arena(
    nbytes: Sequence[int], lifetimes: Sequence[tuple[int, int]]
) -> tuple[list[int], int]:
    """Give every buffer an offset so that buffers alive at the same step never overlap.

    Larger buffers are placed first, each at the lowest gap that fits between those already placed whose
    lifetimes meet its own ("greedy by size" in Pisarchyk and Lee, 2020, "Efficient Memory Management for
    Deep Neural Net Inference").

    Args:
        nbytes: size of every buffer in bytes.
        lifetimes: first and last step of every buffer, both included.

    Returns:
        The offsets in bytes, aligned to `ARENA_ALIGNMENT`, and the arena's size in bytes.
    """
    sizes = [_align(n) for n in nbytes]
    offsets = [0] * len(sizes)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], lifetimes[i][0])):
        first, last = lifetimes[index]
        neighbours = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in placed
            if lifetimes[other][0] <= last and first <= lifetimes[other][1]
        )
        at = 0
        for begin, end in neighbours:
            if at + sizes[index] <= begin:
                break
            at = max(at, end)
        offsets[index] = at
        placed.append(index)
        total = max(total, at + sizes[index])
    return offsets, total


def _align(nbytes: int) -> int:
    # An empty buffer still gets an address of its own, so that a kernel argument is never null.
    return -(-max(nbytes, 1) // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
