"""Samples: taken in turn, all kept, summarised with their uncertainty."""

from __future__ import annotations

import pytest

from torchvk_compile.bench.summaries import drift, paired_ratio, quality, summary
from torchvk_compile.bench.timing import Failure, Samples, interleave


class _Clock:
    """A sampler that tells a fixed time per call and writes down its turns."""

    def __init__(self, name: str, seconds: float, turns: list[str], fails_at: int = 0) -> None:
        self.name, self.seconds, self.turns, self.fails_at = name, seconds, turns, fails_at

    def sample(self, calls: int) -> float:
        self.turns.append(self.name)
        if self.fails_at and self.turns.count(self.name) >= self.fails_at:
            raise RuntimeError("the device is gone")
        return self.seconds * calls


def _measure(**samplers: _Clock) -> dict[str, Samples | Failure]:
    return interleave(samplers, rounds=4, warm_up=1, sample_seconds=0.01)


def test_ways_take_turns_and_every_other_round_is_reversed() -> None:
    turns: list[str] = []
    found = _measure(a=_Clock("a", 0.001, turns), b=_Clock("b", 0.1, turns))
    assert turns == ["a", "b"] + ["a", "b", "b", "a"] * 2
    assert isinstance(found["a"], Samples) and isinstance(found["b"], Samples)
    assert (found["a"].calls, found["b"].calls) == (10, 1)
    assert found["a"].seconds == pytest.approx([0.001] * 4)


@pytest.mark.parametrize("fails_at", [1, 3])
def test_a_way_that_fails_does_not_stop_the_others(fails_at: int) -> None:
    turns: list[str] = []
    found = _measure(a=_Clock("a", 0.01, turns, fails_at), b=_Clock("b", 0.01, turns))
    assert found["a"] == Failure("RuntimeError: the device is gone")
    assert isinstance(found["b"], Samples) and len(found["b"].seconds) == 4


def test_a_very_slow_way_is_sampled_three_times() -> None:
    turns: list[str] = []
    samplers = {"a": _Clock("a", 9.0, turns)}
    found = interleave(
        samplers, rounds=11, warm_up=1, sample_seconds=0.01, longest_call_seconds=5.0
    )
    assert isinstance(found["a"], Samples) and len(found["a"].seconds) == 3


def test_summary_is_median_and_quartiles() -> None:
    found = summary([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.lower, found.median, found.upper, found.count) == (2.0, 3.0, 4.0, 5)
    with pytest.raises(ValueError, match="no samples"):
        summary([])


def test_pairing_cancels_what_slows_both_ways_down() -> None:
    load = [1.0, 3.0, 1.0, 5.0, 2.0]
    found = paired_ratio([2 * x for x in load], load)
    assert (found.lower, found.median, found.upper) == (2.0, 2.0, 2.0)


def test_the_interval_of_noisy_ratios_holds_the_median() -> None:
    found = paired_ratio([1.0, 1.2, 0.9, 1.4, 1.1, 1.0, 1.3], [1.0] * 7)
    assert found.lower < found.median < found.upper
    assert found == paired_ratio([1.0, 1.2, 0.9, 1.4, 1.1, 1.0, 1.3], [1.0] * 7)


def test_drift_compares_the_last_third_with_the_first() -> None:
    assert drift([1.0] * 3 + [1.5] * 3 + [2.0] * 3) == pytest.approx(1.0)
    assert drift([1.0, 2.0, 3.0]) == 0.0


def test_warnings_name_drift_and_noise() -> None:
    method = {"drift_share": 0.15, "noise_share": 0.35}
    assert quality([1.0, 1.01, 1.0, 0.99, 1.0, 1.01], method).words() == []
    (drifting,) = quality([1.0, 1.0, 1.2, 1.2, 1.4, 1.4], method).words()
    assert "drift by +40%" in drifting
    (noisy,) = quality([1.0, 9.0, 1.0, 9.0], method).words()
    assert noisy.startswith("noisy")
