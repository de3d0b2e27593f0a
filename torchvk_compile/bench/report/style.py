"""How numbers, names and colours look in tables and plots.

In: numbers in SI units. Out: text. Forbidden: knowing experiments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torchvk_compile.bench.summaries import Ratio, summary
from torchvk_compile.bench.ways import LABELS

# Okabe and Ito's palette (2008), which colour-blind readers can tell apart.
COLOURS = {
    "vk-compiled": "#D55E00",
    "vk-eager": "#E69F00",
    "cpu-eager": "#0072B2",
    "cpu-inductor": "#56B4E9",
    "torchvulkan": "#CC79A7",
    "cuda-eager": "#009E73",
    "cuda-inductor": "#4B6B3C",
    "full": "#D55E00",
}
OTHER_COLOUR = "#6B7280"


def label(way: str) -> str:
    """What people read for a way's name."""
    return LABELS.get(way, way.replace("_", " "))


def colour(way: str) -> str:
    """A way's colour in every plot."""
    return COLOURS.get(way, OTHER_COLOUR)


def seconds(value: float) -> str:
    """``1.23 ms``: three digits, in the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{_digits(value / scale)} {unit}"
    return f"{_digits(value / 1e-9)} ns"


def spread(way: Mapping[str, Any]) -> str:
    """Median with quartiles: ``1.23 ms (1.20 ms to 1.31 ms)``."""
    found = summary(way["seconds"])
    return f"{seconds(found.median)} ({seconds(found.lower)} to {seconds(found.upper)})"


def nbytes(value: float) -> str:
    """``12.3 MiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def ratio(value: Ratio | None) -> str:
    """``0.45 (0.43 to 0.47)``, or a dash."""
    if value is None:
        return "–"
    return f"{_digits(value.median)} ({_digits(value.lower)} to {_digits(value.upper)})"


def number(value: float | None) -> str:
    """A measure or a bound with up to three significant digits."""
    if value is None:
        return "no data"
    if value == 0:
        return "0"
    if abs(value) < 1e-2 or abs(value) >= 1e5:
        return f"{value:.2g}"
    return _digits(value)


def _digits(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and decimals > 2 else text
