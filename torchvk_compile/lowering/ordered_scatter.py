"""Scatters whose values meet in a fixed order: by place first, then as they came.

In: values with computed places. Out: the same result in every run, bit for bit. Forbidden: atomic operations.

The values are sorted by their place, a segmented scan combines those of one place, and the last of each place writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import slice_, view
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from torchvk_compile.lowering.scan import scan
from torchvk_compile.lowering.sort import order_rows

Index = Sequence[Any]


def scatter_in_order(
    target: ir.TensorBox,
    ranges: Sequence[sympy.Expr],
    place: Callable[[Index], Index],
    value: Callable[[Index], Any],
    reduce: str | None,
) -> ir.TensorBox:
    """`target` with ``value(i)`` combined into element ``place(i)`` for every i in `ranges`.

    Args:
        reduce: sum, prod, amax or amin; None: the last value of each place stays.
    """
    device, dtype, size = target.get_device(), target.get_dtype(), list(target.get_size())
    numel = V.graph.sizevars.simplify(sympy_product(size))
    count = V.graph.sizevars.simplify(sympy_product(ranges))

    def flattened(inner: Callable[[Index], Any], kind: torch.dtype) -> ir.TensorBox:
        node = ir.Pointwise.create(device=device, dtype=kind, inner_fn=inner, ranges=list(ranges))
        node.realize()
        return view(node, [count])

    def linear(index: Index) -> Any:
        offset = sympy.Integer(0)
        for position, extent in zip(place(index), size, strict=True):
            offset = offset * extent + position
        # An index expression alone may be narrower than it says, also when it is read back from a buffer.
        return ops.to_dtype(ops.index_expr(offset, torch.int64), torch.int64)

    places, values = flattened(linear, torch.int64), flattened(value, dtype)
    order = order_rows(places)
    load_order, load_place, load_value = (
        order.make_loader(),
        places.make_loader(),
        values.make_loader(),
    )

    def sorted_loader(load: Callable[[Index], Any]) -> Callable[[Index], Any]:
        def at(index: Index) -> Any:
            return load(
                [ops.indirect_indexing(load_order(index), count, check=False, wrap_neg=False)]
            )

        return at

    sorted_place, total = sorted_loader(load_place), sorted_loader(load_value)
    if reduce is not None:
        total = _combined_per_place(device, dtype, sorted_place, total, count, reduce)

    def is_last(index: Index) -> Any:
        (i,) = index
        last = ops.eq(ops.index_expr(i, torch.int64), ops.index_expr(count - 1, torch.int64))
        following = ops.masked(ops.logical_not(last), lambda: sorted_place([i + 1]), -1)
        return ops.ne(sorted_place(index), following)

    flat = view(target, [numel])
    load_old = flat.make_loader()

    def grown(index: Index) -> Any:
        inside = ops.lt(ops.index_expr(index[0], torch.int64), ops.index_expr(numel, torch.int64))
        zero: Any = False if dtype is torch.bool else 0.0 if dtype.is_floating_point else 0
        return ops.masked(inside, lambda: load_old(index), zero)

    # One spare element takes the writes of all values that are not the last of their place.
    result = ir.Pointwise.create(device=device, dtype=dtype, inner_fn=grown, ranges=[numel + 1])
    result.realize()

    def write_to(index: Index) -> Index:
        spare = ops.index_expr(numel, torch.int64)
        return [
            ops.indirect_indexing(
                ops.where(is_last(index), sorted_place(index), spare),
                numel + 1,
                check=False,
                wrap_neg=False,
            )
        ]

    def written(index: Index) -> Any:
        if reduce is None:
            return total(index)
        there = ops.indirect_indexing(sorted_place(index), numel, check=False, wrap_neg=False)
        return combination(reduce, dtype)(load_old([there]), total(index))

    node = ir.Scatter(
        device=device,
        dtype=dtype,
        inner_fn=written,
        ranges=[count],
        output_indexer=write_to,
        scatter_mode=None,
    )
    buffer = ir.ComputedBuffer(name=None, layout=ir.MutationLayoutSHOULDREMOVE(result), data=node)
    buffer.name = V.graph.register_buffer(buffer)
    V.graph.register_operation(buffer)
    return view(slice_(result, 0, 0, numel), size)


def combination(reduce: str, dtype: torch.dtype) -> Callable[[Any, Any], Any]:
    """How two values of a reduction combine, in `ops`."""
    if dtype is torch.bool:
        return ops.logical_or if reduce in ("sum", "amax") else ops.logical_and
    return {"sum": ops.add, "prod": ops.mul, "amax": ops.maximum, "amin": ops.minimum}[reduce]


def _combined_per_place(
    device: torch.device,
    dtype: torch.dtype,
    sorted_place: Callable[[Index], Any],
    sorted_value: Callable[[Index], Any],
    count: sympy.Expr,
    reduce: str,
) -> Callable[[Index], Any]:
    """A loader that gives, at the last value of a place, the combination of all its values."""
    combine_values = combination(reduce, dtype)

    def combine(earlier: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        same = ops.eq(earlier[0], later[0])
        return later[0], ops.where(same, combine_values(earlier[1], later[1]), later[1])

    _, totals = scan(
        device, [torch.int64, dtype], [sorted_place, sorted_value], [count], 0, combine
    )
    return totals.make_loader()
