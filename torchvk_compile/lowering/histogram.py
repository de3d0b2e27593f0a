"""Counting how many elements fall into each bin: histc, histogram, histogramdd.

In: ATen histograms of vk tensors. Out: a search for every element's bin and a scatter into the bins. Forbidden: reading
the range of the data back to the host.

Unweighted counts are whole numbers until the end, so that they are exact and the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import full, lowerings, select, to_dtype, view
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from torchvk_compile.codegen.dtypes import compute_dtype
from torchvk_compile.lowering.scatter import Writes, scatter_to

Index = Sequence[Any]
Loader = Callable[[Index], Any]

_aten = torch.ops.aten


def _pointwise(device: torch.device, dtype: torch.dtype, size: Sequence[Any], inner: Loader) -> ir.TensorBox:
    return ir.Pointwise.create(device=device, dtype=dtype, inner_fn=inner, ranges=list(size))


def _range_of(
    x: ir.TensorBox, low: float, high: float, margin: float, *, from_data: bool
) -> tuple[ir.TensorBox, ir.TensorBox]:
    """The ends of the range as tensors without dimensions, `margin` apart from a single value.

    Args:
        low, high: the ends asked for.
        from_data: take the smallest and the largest element instead.
    """
    device, dtype = x.get_device(), x.get_dtype()
    if from_data and not V.graph.sizevars.statically_known_equals(sympy_product(x.get_size()), 0):
        least, most = lowerings[_aten.amin.default](x, []), lowerings[_aten.amax.default](x, [])
    else:
        least, most = (full([], end, dtype=dtype, device=device) for end in (low, high))
    load_least, load_most = least.make_loader(), most.make_loader()

    def widened(load: Loader, step: float) -> ir.TensorBox:
        def inner(index: Index) -> Any:
            single = ops.eq(load_least(index), load_most(index))
            return ops.where(single, ops.add(load(index), ops.constant(step, dtype)), load(index))

        return _pointwise(device, dtype, [], inner)

    ends = widened(load_least, -margin), widened(load_most, margin)
    for end in ends:
        end.realize()
    if from_data:
        load_ends = [end.make_loader() for end in ends]

        def is_finite(index: Index) -> Any:
            odd = [ops.logical_or(ops.isnan(load(index)), ops.isinf(load(index))) for load in load_ends]
            return ops.logical_not(ops.logical_or(*odd))

        finite = _pointwise(device, torch.bool, [], is_finite)
        lowerings[_aten._assert_async.msg](finite, "the range of a histogram's data is not finite")
    return ends


def _histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> ir.TensorBox:
    """Counts of equal bins, each found by division, as ATen does (aten/src/ATen/native/cpu/HistogramKernel.cpp)."""
    dtype, register = x.get_dtype(), compute_dtype(x.get_dtype())
    low, high = _range_of(x, float(min), float(max), 1, from_data=min == max)
    load, load_low, load_high = x.make_loader(), low.make_loader(), high.make_loader()

    def bin_of(index: Index) -> tuple[Any, Any]:
        value, least, most = load(index), load_low([]), load_high([])
        inside = ops.logical_and(ops.ge(value, least), ops.le(value, most))
        scaled = ops.truediv(
            ops.mul(ops.sub(value, least), ops.constant(float(bins), register)), ops.sub(most, least)
        )
        place = ops.to_dtype(ops.where(inside, scaled, ops.constant(0.0, register)), torch.int64, src_dtype=register)
        return inside, ops.minimum(place, ops.constant(bins - 1, torch.int64))

    return to_dtype(_counted(x, bins, bin_of, None), dtype)


def _counted(
    x: ir.TensorBox,
    bins: sympy.Expr,
    bin_of: Callable[[Index], tuple[Any, Any]],
    weight: ir.TensorBox | None,
    ranges: Sequence[Any] | None = None,
) -> ir.TensorBox:
    """Number (or summed weight) of the elements of each bin.

    Args:
        bin_of: whether an element counts, and its bin.
        weight: of each element; None counts in int32.
        ranges: of the elements; x's size by default.
    """
    kind = torch.int32 if weight is None else compute_dtype(weight.get_dtype())
    zeros = full([bins], 0, dtype=kind, device=x.get_device())
    load_weight = weight.make_loader() if weight is not None else None

    def place(index: Index) -> Index:
        return [ops.indirect_indexing(bin_of(index)[1], bins, check=False, wrap_neg=False)]

    def value(index: Index) -> Any:
        own = ops.constant(1, kind) if load_weight is None else ops.to_dtype(load_weight(index), kind)
        return ops.where(bin_of(index)[0], own, ops.constant(0, kind))

    return scatter_to(zeros, Writes(ranges if ranges is not None else x.get_size(), place, value), "sum")


def _linear_edges(low: ir.TensorBox, high: ir.TensorBox, bins: int, dtype: torch.dtype) -> ir.TensorBox:
    """`bins` + 1 edges at equal distances, from both ends to the middle as torch.linspace does."""
    load_low, load_high = low.make_loader(), high.make_loader()

    def edge(index: Index) -> Any:
        (i,) = index
        least, most = load_low([]), load_high([])
        step = ops.truediv(ops.sub(most, least), ops.constant(float(bins), dtype))
        here = ops.index_expr(i, torch.int64)
        first = ops.add(least, ops.mul(step, ops.to_dtype(here, dtype, src_dtype=torch.int64)))
        rest = ops.to_dtype(ops.sub(ops.constant(bins, torch.int64), here), dtype, src_dtype=torch.int64)
        second = ops.sub(most, ops.mul(step, rest))
        return ops.where(ops.lt(here, ops.constant((bins + 1) // 2, torch.int64)), first, second)

    edges = _pointwise(low.get_device(), dtype, [bins + 1], edge)
    edges.realize()
    return edges


def _column(x: ir.TensorBox, dimension: int) -> ir.TensorBox:
    column = select(x, -1, dimension)
    return view(column, [sympy_product(column.get_size())])


def _edges_of(x: ir.TensorBox, bins: Sequence[int], limits: Sequence[float] | None) -> list[ir.TensorBox]:
    edges = []
    for dimension, count in enumerate(bins):
        low, high = limits[2 * dimension : 2 * dimension + 2] if limits else (0.0, 1.0)
        ends = _range_of(_column(x, dimension), low, high, 0.5, from_data=not limits)
        edges.append(_linear_edges(*ends, count, x.get_dtype()))
    return edges


def _binned(
    x: ir.TensorBox, edges: Sequence[ir.TensorBox], weight: ir.TensorBox | None, density: bool
) -> ir.TensorBox:
    """Histogram of points (…, D) over the boxes that D rows of edges make."""
    dtype = x.get_dtype()
    columns = [_column(x, dimension) for dimension in range(len(edges))]
    counts = [e.get_size()[0] - 1 for e in edges]
    after = [
        lowerings[_aten.searchsorted.Tensor](e, column, right=True)
        for e, column in zip(edges, columns, strict=True)
    ]
    loads = [
        (column.make_loader(), found.make_loader(), e.make_loader(), e.get_size()[0])
        for column, found, e in zip(columns, after, edges, strict=True)
    ]

    def bin_of(index: Index) -> tuple[Any, Any]:
        counted, linear = None, ops.constant(0, torch.int64)
        for load, load_after, load_edge, number in loads:
            value = load(index)
            inside = ops.logical_and(
                ops.ge(value, load_edge([sympy.Integer(0)])), ops.le(value, load_edge([number - 1]))
            )
            counted = inside if counted is None else ops.logical_and(counted, inside)
            # The last bin includes its right edge.
            last = ops.index_expr(number - 2, torch.int64)
            place = ops.minimum(ops.sub(load_after(index), ops.constant(1, torch.int64)), last)
            place = ops.maximum(place, ops.constant(0, torch.int64))
            linear = ops.add(ops.mul(linear, ops.index_expr(number - 1, torch.int64)), place)
        return counted, linear

    flat_weight = view(weight, [sympy_product(weight.get_size())]) if weight is not None else None
    total = _counted(x, sympy_product(counts), bin_of, flat_weight, columns[0].get_size())
    histogram = view(to_dtype(total, dtype), counts)
    if not density:
        return histogram
    histogram = lowerings[_aten.div.Tensor](histogram, lowerings[_aten.sum.default](histogram))
    for dimension, e in enumerate(edges):
        load_edge = e.make_loader()

        def width(index: Index, load_edge: Loader = load_edge) -> Any:
            return ops.sub(load_edge([index[0] + 1]), load_edge(index))

        widths = _pointwise(x.get_device(), dtype, [counts[dimension]], width)
        shape = [sympy.Integer(1)] * len(counts)
        shape[dimension] = counts[dimension]
        histogram = lowerings[_aten.div.Tensor](histogram, view(widths, shape))
    return histogram


def _histogram_of_count(
    x: Any, bins: int = 100, *, range: Any = None, weight: Any = None, density: bool = False
) -> tuple[ir.TensorBox, ir.TensorBox]:
    points = view(x, [sympy_product(x.get_size()), 1])
    (edges,) = _edges_of(points, [bins], range)
    return _binned(points, [edges], weight, density), edges


def _histogram_of_edges(
    x: Any, bins: Any, *, weight: Any = None, density: bool = False
) -> tuple[ir.TensorBox, ir.TensorBox]:
    points = view(x, [sympy_product(x.get_size()), 1])
    edges = lowerings[_aten.clone.default](bins)
    return _binned(points, [bins], weight, density), edges


def _bin_edges(x: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    return _edges_of(x, bins, range)


def _histogramdd_of_counts(
    x: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> ir.TensorBox:
    return _binned(x, _edges_of(x, bins, range), weight, density)


def _histogramdd_of_edges(x: Any, bins: Any, *, weight: Any = None, density: bool = False) -> ir.TensorBox:
    return _binned(x, bins, weight, density)


def register_histograms() -> None:
    """Route the histograms of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    route(_aten.histc.default, _histc)
    route(_aten.histogram.bin_ct, _histogram_of_count)
    route(_aten.histogram.bins_tensor, _histogram_of_edges)
    route(_aten._histogramdd_bin_edges.default, _bin_edges)
    route(_aten._histogramdd_from_bin_cts.default, _histogramdd_of_counts)
    route(_aten._histogramdd_from_bin_tensors.default, _histogramdd_of_edges)
