"""Elements selected by a condition, into results whose size is known: nonzero_static, the gradient of masked_scatter.

In: ATen selections of vk tensors. Out: a running count of what is selected, and a scatter to the places it gives.
Forbidden: sizes that depend on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchvk_compile.lowering.decomposed import route_decomposition

_aten = torch.ops.aten


def register_selections() -> None:
    """Route these selections of vk tensors here."""
    route_decomposition(_aten.nonzero_static.default, _nonzero_static)
    route_decomposition(_aten.masked_scatter_backward.default, _masked_scatter_gradient)


def _places(selected: torch.Tensor, size: int) -> torch.Tensor:
    """For every element its number among the selected ones, `size` where it is not or there is no room."""
    number = selected.to(torch.int64).cumsum(0) - 1
    return torch.where(selected & (number < size), number, size)


def _nonzero_static(x: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """(size, dimensions of x): indices of the elements that are not 0, then rows of `fill_value`."""
    count = x.numel()
    if count == 0 or x.dim() == 0:
        return torch.full((size, x.dim()), fill_value, dtype=torch.int64, device=x.device)
    places = _places((x != 0).reshape(count), size)
    positions = torch.arange(count, device=x.device)
    # Whatever has no place lands behind the result.
    found = torch.full((size + 1,), -1, dtype=torch.int64, device=x.device)
    found = found.scatter(0, places, positions)[:size]
    columns = []
    rest = found
    for extent in reversed(x.shape):
        columns.append(torch.where(found < 0, fill_value, rest % extent))
        rest = rest // extent
    return torch.stack(columns[::-1], 1)


def _masked_scatter_gradient(
    grad: torch.Tensor, mask: torch.Tensor, sizes: Sequence[int]
) -> torch.Tensor:
    """Gradient of the source: the selected elements of `grad`, one after the other, then zeros."""
    size = math.prod(sizes)
    grad, mask = torch.broadcast_tensors(grad, mask)
    places = _places(mask.reshape(-1), size)
    spread = torch.zeros(size + 1, dtype=grad.dtype, device=grad.device)
    return spread.scatter(0, places, grad.reshape(-1))[:size].reshape(tuple(sizes))
