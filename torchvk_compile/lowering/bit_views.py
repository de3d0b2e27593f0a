"""A tensor's memory seen as another dtype of another width, inside a graph, where every view is a value.

In: ``x.view(dtype)`` of an integer or floating tensor. Out: integers taken apart or put together by shifts. Forbidden:
dtypes of one width, which Inductor reads bit by bit itself.
"""

from __future__ import annotations

import torch

_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer dtype of a width in bytes. Every device Vulkan knows stores the lowest byte first."""


def view_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`aten.view.dtype` for a wider or narrower dtype: the last dimension shrinks or grows by the quotient."""
    own, other = x.dtype.itemsize, dtype.itemsize
    if own == other or torch.bool in (x.dtype, dtype) or x.is_complex() or dtype.is_complex:
        return NotImplemented
    whole = x.view(_WHOLE[own])
    if own > other:
        parts = [(whole >> (8 * other * i)).to(_WHOLE[other]) for i in range(own // other)]
        return torch.stack(parts, -1).flatten(-2).view(dtype)
    width = 8 * own
    parts = list(whole.unflatten(-1, (-1, other // own)).unbind(-1))
    total = parts[-1].to(_WHOLE[other]) << (width * (len(parts) - 1))
    for i, part in enumerate(parts[:-1]):
        total = total | ((part.to(_WHOLE[other]) & ((1 << width) - 1)) << (width * i))
    return total.view(dtype)
