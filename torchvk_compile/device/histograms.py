"""torch.histogram and torch.histogramdd, which torch cannot trace: written with operators that have kernels.

In: vk tensors. Out: vk tensors. Forbidden: computing on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Limits = Sequence[float] | None


def _outer_edges(
    points: torch.Tensor, dimension: int, limits: Limits
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both ends of a dimension's bins, half a unit to either side of a single value as in NumPy."""
    if limits:
        low, high = limits[2 * dimension : 2 * dimension + 2]
        ends = torch.tensor([low, high], dtype=points.dtype).to(points.device)
    elif points.numel() == 0:
        ends = torch.tensor([0.0, 1.0], dtype=points.dtype).to(points.device)
    else:
        ends = torch.stack(torch.aminmax(points[:, dimension]))
        if not bool(torch.isfinite(ends).all()):
            raise RuntimeError(f"torch.histogramdd: dimension {dimension}'s range is not finite")
    low, high = ends.unbind()
    single = low == high
    return torch.where(single, low - 0.5, low), torch.where(single, high + 0.5, high)


def _linear_edges(points: torch.Tensor, dimension: int, bins: int, limits: Limits) -> torch.Tensor:
    """``bins`` + 1 edges at equal distances, from both ends to the middle as torch.linspace does."""
    low, high = _outer_edges(points, dimension, limits)
    numbers = torch.arange(bins + 1, device=points.device)
    step = (high - low) / bins
    rising = low + step * numbers.to(points.dtype)
    falling = high - step * (bins - numbers).to(points.dtype)
    return torch.where(numbers < (bins + 1) // 2, rising, falling)


def _edges(points: torch.Tensor, bins: Sequence[int], limits: Limits) -> list[torch.Tensor]:
    if points.shape[-1] != len(bins):
        raise RuntimeError(
            f"torch.histogramdd: expected len(bins) to match the {points.shape[-1]} dimensions of the points, "
            f"but got {len(bins)}"
        )
    points = points.reshape(-1, points.shape[-1])
    return [_linear_edges(points, d, count, limits) for d, count in enumerate(bins)]


def _binned(
    points: torch.Tensor, edges: Sequence[torch.Tensor], weight: torch.Tensor | None, density: bool
) -> torch.Tensor:
    """Histogram of points (…, D) over the boxes that D rows of edges make."""
    columns = points.reshape(-1, points.shape[-1]).unbind(1)
    counts = [e.numel() - 1 for e in edges]
    place: Any = 0
    counted: Any = True
    for column, e, count in zip(columns, edges, counts, strict=True):
        counted = (column >= e[0]) & (column <= e[-1]) & counted
        # The last bin includes its right edge.
        found = torch.searchsorted(e.contiguous(), column.contiguous(), right=True) - 1
        place = place * count + found.clamp(0, count - 1)
    kind = points.dtype if weight is not None else torch.int64
    share = counted.to(kind) if weight is None else torch.where(counted, weight.reshape(-1), 0)
    total = 1
    for count in counts:
        total *= count
    sums = torch.zeros(total, dtype=kind, device=points.device).index_add_(0, place, share)
    histogram = sums.to(points.dtype).reshape(counts)
    if density:
        histogram = histogram / histogram.sum()
        for dimension, e in enumerate(edges):
            shape = [1] * len(edges)
            shape[dimension] = -1
            histogram = histogram / torch.diff(e).reshape(shape)
    return histogram


def _histogram_of_count(
    self: torch.Tensor,
    bins: int = 100,
    *,
    range: Limits = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    points = self.reshape(-1, 1)
    edges = _edges(points, [bins], range)
    return _binned(points, edges, weight, density), edges[0]


def _histogram_of_edges(
    self: torch.Tensor,
    bins: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _binned(self.reshape(-1, 1), [bins], weight, density), bins.clone()


def _bin_edges(
    self: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Limits = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> list[torch.Tensor]:
    return _edges(self, bins, range)


def _histogramdd_of_counts(
    self: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Limits = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:
    return _binned(self, _edges(self, bins, range), weight, density)


def _histogramdd_of_edges(
    self: torch.Tensor,
    bins: Sequence[torch.Tensor],
    *,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:
    return _binned(self, bins, weight, density)


KERNELS: dict[str, Callable[..., Any]] = {
    "histogram.bin_ct": _histogram_of_count,
    "histogram.bins_tensor": _histogram_of_edges,
    "_histogramdd_bin_edges": _bin_edges,
    "_histogramdd_from_bin_cts": _histogramdd_of_counts,
    "_histogramdd_from_bin_tensors": _histogramdd_of_edges,
}
"""ATen kernels of this file."""
