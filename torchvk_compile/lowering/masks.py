"""Boolean masks as indices, without asking how many elements they select.

In: a tensor, a mask over some of its dimensions, values. Out: a pointwise choice between old and new values.
Forbidden: data-dependent sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import clone, expand, to_dtype, view
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from torchvk_compile.lowering.scan import running_sum

MASKS = (torch.bool, torch.uint8)
"""Dtypes that select instead of count when they are used as an index."""

Index = Sequence[Any]


def put_under_mask(
    x: ir.TensorBox, indices: Sequence[ir.TensorBox | None], values: ir.TensorBox, accumulate: bool
) -> ir.TensorBox:
    """``x`` with ``x[.., mask, ..] = values`` (or ``+=``).

    A mask beside other indices selects a number of elements that has to be known before they can be broadcast; such
    a call goes to eager kernels of the device.

    Args:
        indices: None before the mask, and the mask.
        values: broadcast to the selection, in x's dtype.
    """
    given = [(position, index) for position, index in enumerate(indices) if index is not None]
    if len(given) > 1:
        return _by_eager_kernels(x, indices, values, accumulate)
    ((first, mask),) = given
    last = first + len(mask.get_size())
    size = x.get_size()
    values_loader = _selected_values(mask, values, size[:first], size[last:])
    load_mask = to_dtype(mask, torch.bool).make_loader()
    load_old = x.make_loader()

    def choose(index: Index) -> Any:
        selected = load_mask(index[first:last])
        old = load_old(index)
        new = ops.masked(selected, lambda: values_loader(index, first, last), _zero(x.get_dtype()))
        if accumulate:
            new = _plus(old, new, x.get_dtype())
        return ops.where(selected, new, old)

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=choose, ranges=list(size)
    )


def _selected_values(
    mask: ir.TensorBox,
    values: ir.TensorBox,
    before: Sequence[sympy.Expr],
    after: Sequence[sympy.Expr],
) -> Any:
    """From an index of the whole tensor to the value that belongs there."""
    own = list(values.get_size())
    rank = len(before) + 1 + len(after)
    own = [sympy.Integer(1)] * (rank - len(own)) + own
    values = view(values, own)
    count = own[len(before)]
    known = V.graph.sizevars.statically_known_equals
    values = expand(values, [*before, count, *after])
    load = values.make_loader()
    if known(count, 1):
        return lambda index, first, last: load([*index[:first], sympy.Integer(0), *index[last:]])
    size = mask.get_size()
    flat = view(to_dtype(mask, torch.bool), [sympy_product(size)])
    order = view(running_sum(to_dtype(flat, torch.int64), 0), size)
    order.realize()
    load_order = order.make_loader()

    def at(index: Index, first: int, last: int) -> Any:
        place = ops.sub(load_order(index[first:last]), ops.constant(1, torch.int64))
        return load(
            [*index[:first], ops.indirect_indexing(place, count, wrap_neg=False), *index[last:]]
        )

    return at


def _by_eager_kernels(
    x: ir.TensorBox, indices: Sequence[ir.TensorBox | None], values: ir.TensorBox, accumulate: bool
) -> ir.TensorBox:
    target = clone(x)
    target.realize()
    ir.IndexPutFallback(
        torch.ops.aten.index_put_.default, target, list(indices), values, accumulate
    )
    return target


def _plus(old: Any, new: Any, dtype: torch.dtype) -> Any:
    return ops.logical_or(old, new) if dtype is torch.bool else ops.add(old, new)


def _zero(dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0
