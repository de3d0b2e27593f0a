"""Where a barrier is needed between the steps of a plan.

In: what every step reads and writes, and which intermediates share memory. Out: one flag per step.
Forbidden: reordering steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchvk_compile.plan.graph_plan import Dispatch


def barriers(steps: Sequence[Dispatch], shares_memory: Callable[[str, str], bool]) -> list[bool]:
    """Tell for every step whether it must wait for the steps before it.

    A step waits when it reads what an unfinished step wrote, or writes what an unfinished step read or
    wrote; "unfinished" are the steps since the last barrier. The first step never waits: every recording
    begins with a barrier.

    Args:
        steps: dispatches in order.
        shares_memory: whether two different buffers may overlap in memory.
    """
    flags: list[bool] = []
    read: set[str] = set()
    written: set[str] = set()
    for step in steps:
        wait = _touches(step.reads, written, shares_memory) or _touches(
            step.writes, read | written, shares_memory
        )
        if wait:
            read, written = set(), set()
        flags.append(wait)
        read.update(step.reads)
        written.update(step.writes)
    return flags


def _touches(
    names: Sequence[str], pending: set[str], shares_memory: Callable[[str, str], bool]
) -> bool:
    return any(
        name in pending or any(shares_memory(name, other) for other in pending) for name in names
    )
