"""Elements selected by places or by a condition: gather, nonzero_static, the gradient of masked_scatter.

In: ATen selections of vk tensors. Out: loads from computed places; for conditions a running count of what is selected,
and a scatter to the places it gives. Forbidden: sizes that depend on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import expand, new_empty
from torch._inductor.virtualized import ops

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten


def register_selections() -> None:
    """Route these selections of vk tensors here."""
    route(_aten.gather.default, _gather)
    route_decomposition(_aten.nonzero_static.default, _nonzero_static)
    route_decomposition(_aten.masked_scatter_backward.default, _masked_scatter_gradient)


def _gather(
    x: ir.TensorBox, dim: int, index: ir.TensorBox, *, sparse_grad: bool = False
) -> ir.TensorBox:
    """aten.gather; a negative index is out of range, as on the CPU, where torch 2.11 counts from the end."""
    if index.get_numel() == 0:
        return new_empty(x, index.get_size())
    if not x.get_size():
        x = expand(x, [1])
    size = x.get_size()
    dim %= len(size)
    load, place = x.make_loader(), index.make_loader()

    def element(position: Sequence[Any]) -> Any:
        at = ops.indirect_indexing(place(position), size[dim], wrap_neg=False)
        return load([*position[:dim], at, *position[dim + 1 :]])

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=element, ranges=index.get_size()
    )


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
