"""Timing programs against each other: rounds of A B A B, each behind a warm-up that keeps the device busy.

In: programs. Out: seconds per run, one sample a round. Forbidden: knowing what is computed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchvk_compile.bench.summaries import summary

BUSY_SECONDS = 0.2
"""Devices lower their clocks within milliseconds of idling; each sample starts after this much work."""

_BATCH_SECONDS = 0.1
_MOST_RUNS = 2000


Contestant = Callable[[int], float]
"""Runs a program so many times. Returns seconds for all of them, the device's work included."""


@dataclass(frozen=True)
class Times:
    """Seconds per run: the median of the samples, their quartiles, the samples."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return summary(self.samples).median

    @property
    def quartiles(self) -> tuple[float, float]:
        found = summary(self.samples)
        return found.lower, found.upper


def interleaved(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, Times]:
    """Time every contestant once a round, in turn.

    A sample is the wall time of a batch of runs, from an idle queue to an idle queue, divided by the
    batch's length: time of the device, or of the host where that is slower.
    """
    batches = {name: _batch(contestant) for name, contestant in contestants.items()}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            _keep_busy(contestant, batches[name])
            samples[name].append(contestant(batches[name]) / batches[name])
    return {name: Times(tuple(values)) for name, values in samples.items()}


def _batch(contestant: Contestant) -> int:
    """Runs that take about `_BATCH_SECONDS`."""
    contestant(1)
    once = min(contestant(1), contestant(3) / 3)
    return min(max(math.ceil(_BATCH_SECONDS / max(once, 1e-9)), 1), _MOST_RUNS)


def _keep_busy(contestant: Contestant, runs: int) -> None:
    end = time.perf_counter() + BUSY_SECONDS
    while time.perf_counter() < end:
        contestant(max(runs // 4, 1))
