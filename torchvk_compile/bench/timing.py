"""Taking turns: samples of several ways of doing the same thing, interleaved in one run.

In: named callables, each with its own synchronisation. Out: every sample, in the order it was taken.
Forbidden: dropping samples; summarising (`statistics` does).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Protocol

_MOST_CALLS = 1_000
"""Calls in one sample, at most: the queue should not grow without bound."""


class Sampler(Protocol):
    """A way of doing a piece of work whose time can be taken."""

    def sample(self, calls: int) -> float:
        """Do the work `calls` times and wait for the last one. Returns seconds for all of them."""


@dataclasses.dataclass(frozen=True)
class LocalSampler:
    """Work of this process.

    Attributes:
        step: one call; it may return before the device is done.
        synchronize: waits until everything submitted is done.
    """

    step: Callable[[], object]
    synchronize: Callable[[], None]

    def sample(self, calls: int) -> float:
        """See `Sampler`."""
        self.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            self.step()
        self.synchronize()
        return time.perf_counter() - start


@dataclasses.dataclass(frozen=True)
class Samples:
    """What was measured of one way.

    Attributes:
        seconds: per call, one number per round, in order.
        at: when each sample began, in seconds since the first sample of the case.
        calls: calls in each sample.
    """

    seconds: tuple[float, ...]
    at: tuple[float, ...]
    calls: int


@dataclasses.dataclass(frozen=True)
class Failure:
    """A way that could not do the work: the exception's text."""

    reason: str


def interleave(
    samplers: Mapping[str, Sampler],
    *,
    rounds: int,
    warm_up: int,
    sample_seconds: float,
    longest_call_seconds: float = float("inf"),
    on_sample: Callable[[], None] = lambda: None,
) -> dict[str, Samples | Failure]:
    """Take one sample of every way in turn, `rounds` times, each other round in reverse order.

    The warm-up calls fix how many calls make up a sample of about `sample_seconds`; the number stays for all rounds.

    Args:
        samplers: the ways, by name.
        rounds: samples of each way.
        warm_up: calls before the first sample.
        sample_seconds: length of one sample, about.
        longest_call_seconds: a way whose single call takes longer than this is sampled in three rounds only.
        on_sample: called after each sample and after each warm-up.

    Returns:
        The samples of every way; a `Failure` for one that raised, after which the others go on.
    """
    found: dict[str, Samples | Failure] = {}
    calls: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for name, sampler in samplers.items():
        try:
            each = min(sampler.sample(1) for _ in range(max(warm_up, 1)))
        except Exception as error:
            found[name] = Failure(reason_of(error))
        else:
            calls[name] = min(max(round(sample_seconds / max(each, 1e-9)), 1), _MOST_CALLS)
            wanted[name] = rounds if each <= longest_call_seconds else min(rounds, 3)
        on_sample()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    at: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for index in range(rounds):
        names = list(calls) if index % 2 == 0 else list(calls)[::-1]
        for name in names:
            if name in found or index >= wanted[name]:
                continue
            began = time.perf_counter() - start
            try:
                taken = samplers[name].sample(calls[name])
            except Exception as error:
                found[name] = Failure(reason_of(error))
                continue
            at[name].append(began)
            seconds[name].append(taken / calls[name])
            on_sample()
    for name in calls:
        if name not in found:
            found[name] = Samples(tuple(seconds[name]), tuple(at[name]), calls[name])
    return {name: found[name] for name in samplers}


def reason_of(error: Exception) -> str:
    """Kind and first line of an exception, for results."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:400]
