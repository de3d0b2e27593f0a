"""Distinct elements and slices: unique, unique_consecutive, with and without a dimension.

In: vk tensors. Out: vk tensors; one number, how many there are, is read back on the way.
Forbidden: computing on the host.

Equal neighbours are found in sorted order. Slices are compared by their ranks: columns become ranks,
ranks of neighbouring columns become ranks of pairs, and so on, so that n slices of m elements take
log2(m) sorts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _steps(rows: torch.Tensor) -> torch.Tensor:
    """Where an element differs from the one before it along the last dimension; off for the first."""
    steps = torch.zeros(rows.shape, dtype=torch.bool, device=rows.device)
    if rows.shape[-1] > 1:
        steps[..., 1:] = rows[..., 1:] != rows[..., :-1]
    return steps


def _ranks(rows: torch.Tensor) -> torch.Tensor:
    """For every element of a row the number of smaller distinct elements of that row."""
    ordered, order = torch.sort(rows, dim=-1, stable=True)
    numbers = _steps(ordered).cumsum(-1)
    return torch.empty_like(numbers).scatter_(-1, order, numbers)


def _slice_ranks(slices: torch.Tensor) -> torch.Tensor:
    """Ranks of n slices, given as (n, m), in lexicographic order."""
    count = slices.shape[0]
    if slices.shape[1] == 0:
        return torch.zeros(count, dtype=torch.int64, device=slices.device)
    ranks = _ranks(slices.t().contiguous())
    while ranks.shape[0] > 1:
        even = ranks[: ranks.shape[0] // 2 * 2]
        paired = _ranks(even[0::2] * count + even[1::2])
        ranks = paired if even.shape[0] == ranks.shape[0] else torch.cat([paired, ranks[-1:]])
    return ranks[0]


def _grouped(numbers: torch.Tensor, return_inverse: bool, return_counts: bool) -> Result:
    """First members, inverse and counts of the groups that `numbers` (0, 1, 2 … for n elements) assign."""
    device = numbers.device
    none = torch.empty(0, dtype=torch.int64, device=device)
    if numbers.numel() == 0:
        return none, numbers if return_inverse else none, none.clone()
    groups = int(numbers.max().item()) + 1
    places = torch.arange(numbers.numel(), device=device)
    first = torch.full((groups,), numbers.numel(), dtype=torch.int64, device=device)
    first = first.scatter_reduce_(0, numbers, places, "amin")
    counts = none
    if return_counts:
        counts = torch.zeros(groups, dtype=torch.int64, device=device)
        counts.index_add_(0, numbers, torch.ones_like(numbers))
    return first, numbers if return_inverse else none, counts


def _unique2(
    self: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Result:
    flat = self.reshape(-1)
    first, inverse, counts = _grouped(_ranks(flat), return_inverse, return_counts)
    if return_inverse:
        inverse = inverse.reshape(self.shape)
    return flat.index_select(0, first), inverse, counts


def _unique(
    self: torch.Tensor, sorted: bool = True, return_inverse: bool = False
) -> tuple[Any, ...]:
    return _unique2(self, sorted, return_inverse)[:2]


def _unique_consecutive(
    self: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Result:
    if dim is not None:
        return _unique_dim_consecutive(self, dim, return_inverse, return_counts)
    flat = self.reshape(-1)
    first, inverse, counts = _grouped(_steps(flat).cumsum(0), return_inverse, return_counts)
    if return_inverse:
        inverse = inverse.reshape(self.shape)
    return flat.index_select(0, first), inverse, counts


def _unique_dim(
    self: torch.Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Result:
    return _along(self, dim, _slice_ranks, return_inverse, return_counts)


def _unique_dim_consecutive(
    self: torch.Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Result:
    def numbered(slices: torch.Tensor) -> torch.Tensor:
        return _steps(slices.t()).any(0).cumsum(0)

    return _along(self, dim, numbered, return_inverse, return_counts)


def _along(
    self: torch.Tensor,
    dim: int,
    numbered: Callable[[torch.Tensor], torch.Tensor],
    return_inverse: bool,
    return_counts: bool,
) -> Result:
    if self.dim() == 0:
        raise IndexError("unique: a tensor without dimensions has no dimension to compare along")
    dim = dim % self.dim()
    others = [extent for d, extent in enumerate(self.shape) if d != dim]
    if self.shape[dim] == 0:
        if 0 in others:
            raise RuntimeError(
                "Expected tensor to have at most one 0-sized dimension, since unique along it has no meaning"
            )
        empty = torch.empty(0, dtype=torch.int64, device=self.device)
        return self.clone(), empty, empty.clone()
    if 0 in others:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    slices = self.movedim(dim, 0).reshape(self.shape[dim], -1)
    first, inverse, counts = _grouped(numbered(slices), return_inverse, return_counts)
    return self.index_select(dim, first), inverse, counts


KERNELS: dict[str, Callable[..., Any]] = {
    "_unique": _unique,
    "_unique2": _unique2,
    "unique_dim": _unique_dim,
    "unique_consecutive": _unique_consecutive,
    "unique_dim_consecutive": _unique_dim_consecutive,
}
"""ATen kernels of this file."""
