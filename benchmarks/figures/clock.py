"""Timing programs against each other: rounds of A B A B, each behind a warm-up that keeps the device busy.

In: programs. Out: seconds per run, one sample a round. Forbidden: knowing what is computed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from figures.case import Program
from torchvk_compile.bench.summaries import summary
from torchvk_compile.bench.timing import LocalSampler

BUSY_SECONDS = 0.2
"""Devices lower their clocks within milliseconds of idling; each sample starts after this much work."""

_BATCH_SECONDS = 0.1
_MOST_RUNS = 2000


@dataclass(frozen=True)
class Contestant:
    """A program and how to wait for its device."""

    program: Program
    synchronize: Callable[[], None]


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
            samples[name].append(_time(contestant, batches[name]))
    return {name: Times(tuple(values)) for name, values in samples.items()}


def _batch(contestant: Contestant) -> int:
    """Runs that take about `_BATCH_SECONDS`."""
    _time(contestant, 1)
    once = min(_time(contestant, 1), _time(contestant, 3))
    return min(max(math.ceil(_BATCH_SECONDS / max(once, 1e-9)), 1), _MOST_RUNS)


def _keep_busy(contestant: Contestant, runs: int) -> None:
    end = time.perf_counter() + BUSY_SECONDS
    while time.perf_counter() < end:
        for _ in range(max(runs // 4, 1)):
            contestant.program()
        contestant.synchronize()


def _time(contestant: Contestant, runs: int) -> float:
    return LocalSampler(contestant.program, contestant.synchronize).sample(runs) / runs
