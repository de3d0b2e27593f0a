"""Wall time of a batch of runs.

In: a program and how to wait for its device. Out: seconds. Forbidden: TorchVK; processes without it read this, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from figures.case import Program


def seconds_of(program: Program, synchronize: Callable[[], None], runs: int) -> float:
    """Seconds for `runs` runs, from an idle queue to an idle queue."""
    synchronize()
    start = time.perf_counter()
    for _ in range(runs):
        program()
    synchronize()
    return time.perf_counter() - start
