"""From samples to statements: medians, spread, paired ratios, drift.

In: samples in the order they were taken. Out: numbers with their uncertainty. Forbidden: measuring; dropping samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 2_000
_SEED = 0
_LEAST_FOR_DRIFT = 6


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of some samples, in the samples' unit, and how many there are."""

    median: float
    lower: float
    upper: float
    count: int

    @property
    def spread(self) -> float:
        """Interquartile range as a share of the median."""
        return (self.upper - self.lower) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Ratio:
    """Median of paired ratios, with the interval that holds it with 95 % confidence (bootstrap, percentiles)."""

    median: float
    lower: float
    upper: float


def summary(samples: Sequence[float]) -> Summary:
    """Median and quartiles. Raises ValueError without samples."""
    if not samples:
        raise ValueError("no samples to summarise")
    lower, median, upper = np.percentile(np.asarray(samples, dtype=float), (25, 50, 75))
    return Summary(float(median), float(lower), float(upper), len(samples))


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Ours over theirs, sample by sample as they were taken in turn; below 1 ours is faster.

    Pairing cancels what slows the machine down for both. The interval is the percentile bootstrap of the median
    (Efron, 1979) with a fixed seed, so that a report made twice says the same.
    """
    pairs = min(len(ours), len(theirs))
    if pairs == 0:
        raise ValueError("no pairs of samples to compare")
    ratios = np.asarray(ours[:pairs], dtype=float) / np.asarray(theirs[:pairs], dtype=float)
    generator = np.random.default_rng(_SEED)
    medians = np.median(generator.choice(ratios, (_RESAMPLES, pairs)), axis=1)
    lower, upper = np.percentile(medians, (2.5, 97.5))
    return Ratio(float(np.median(ratios)), float(lower), float(upper))


def drift(samples: Sequence[float]) -> float:
    """Median of the last third over that of the first third, minus 1; 0 for fewer than six samples.

    A card that heats up and lowers its clock, or another program that starts, shows here.
    """
    third = len(samples) // 3
    if len(samples) < _LEAST_FOR_DRIFT:
        return 0.0
    return statistics.median(samples[-third:]) / statistics.median(samples[:third]) - 1


@dataclass(frozen=True)
class Quality:
    """What a reader should know before trusting some samples.

    Attributes:
        drift: see `drift`; 0 where it is not worth a warning.
        noise: interquartile range as a share of the median; 0 where it is not worth a warning.
    """

    drift: float
    noise: float

    def words(self) -> list[str]:
        """The warnings as text."""
        found = []
        if self.drift:
            found.append(f"samples drift by {self.drift:+.0%} from the first third to the last")
        if self.noise:
            text = f"noisy: the middle half of the samples spans {self.noise:.0%} of the median"
            found.append(text)
        return found


def quality(samples: Sequence[float], method: Mapping[str, float]) -> Quality:
    """Judge samples by a plan's method.

    Args:
        samples: in the order they were taken.
        method: ``drift_share``, ``noise_share``: what is worth a warning.
    """
    change, spread = drift(samples), summary(samples).spread
    return Quality(
        change if abs(change) > method["drift_share"] else 0.0,
        spread if spread > method["noise_share"] else 0.0,
    )
