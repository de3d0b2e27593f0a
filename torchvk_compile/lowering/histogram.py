"""Counting how many elements fall into each bin: histc.

In: an ATen histogram of a vk tensor. Out: every element's bin and a scatter into the bins.
Forbidden: reading the range of the data back to the host.

Counts are whole numbers until the end, so that they are exact and the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import full, lowerings, to_dtype
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from torchvk_compile.codegen.dtypes import LOW_PRECISION, compute_dtype
from torchvk_compile.lowering.scatter import Writes, scatter_to

Index = Sequence[Any]
Loader = Callable[[Index], Any]

_aten = torch.ops.aten


def _range_of(x: ir.TensorBox) -> tuple[ir.TensorBox, ir.TensorBox]:
    """Smallest and largest element as tensors without dimensions; 1 to either side of a single value."""
    device, dtype = x.get_device(), x.get_dtype()
    if V.graph.sizevars.statically_known_equals(sympy_product(x.get_size()), 0):
        least = most = full([], 0, dtype=dtype, device=device)
    else:
        least, most = lowerings[_aten.amin.default](x, []), lowerings[_aten.amax.default](x, [])
    load_least, load_most = least.make_loader(), most.make_loader()

    def widened(load: Loader, step: float) -> Loader:
        def inner(index: Index) -> Any:
            single = ops.eq(load_least(index), load_most(index))
            return ops.where(single, ops.add(load(index), ops.constant(step, dtype)), load(index))

        return inner

    ends = (
        _scalar(device, dtype, widened(load_least, -1.0)),
        _scalar(device, dtype, widened(load_most, 1.0)),
    )
    loads = [end.make_loader() for end in ends]

    def is_finite(index: Index) -> Any:
        odd = [ops.logical_or(ops.isnan(load(index)), ops.isinf(load(index))) for load in loads]
        return ops.logical_not(ops.logical_or(*odd))

    finite = _scalar(device, torch.bool, is_finite)
    lowerings[_aten._assert_async.msg](finite, "the range of a histogram's data is not finite")
    return ends


def _scalar(device: torch.device, dtype: torch.dtype, inner: Loader) -> ir.TensorBox:
    node = ir.Pointwise.create(device=device, dtype=dtype, inner_fn=inner, ranges=[])
    node.realize()
    return node


def _histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> ir.TensorBox:
    """Counts of equal bins, each found by division, as ATen does (aten/src/ATen/native/cpu/HistogramKernel.cpp)."""
    dtype, register, device = x.get_dtype(), compute_dtype(x.get_dtype()), x.get_device()
    if min == max:
        low, high = _range_of(x)
    else:
        low, high = (full([], float(end), dtype=dtype, device=device) for end in (min, max))
    load, load_low, load_high = x.make_loader(), low.make_loader(), high.make_loader()

    def rounded(value: Any) -> Any:
        """ATen computes in the data's own dtype."""
        return ops.to_dtype(value, dtype, src_dtype=register) if dtype in LOW_PRECISION else value

    def is_inside(index: Index) -> Any:
        value = load(index)
        return ops.logical_and(ops.ge(value, load_low([])), ops.le(value, load_high([])))

    def place(index: Index) -> Index:
        distance = rounded(ops.sub(load(index), load_low([])))
        scaled = rounded(ops.mul(distance, ops.constant(float(bins), register)))
        scaled = rounded(ops.truediv(scaled, rounded(ops.sub(load_high([]), load_low([])))))
        number = ops.where(is_inside(index), scaled, ops.constant(0.0, register))
        # The last bin includes its right edge.
        number = ops.minimum(ops.to_dtype(number, torch.int64), ops.constant(bins - 1, torch.int64))
        return [ops.indirect_indexing(number, bins, check=False, wrap_neg=False)]

    def one(index: Index) -> Any:
        return ops.where(
            is_inside(index), ops.constant(1, torch.int32), ops.constant(0, torch.int32)
        )

    zeros = full([bins], 0, dtype=torch.int32, device=device)
    return to_dtype(scatter_to(zeros, Writes(x.get_size(), place, one), "sum"), dtype)


def register_histograms() -> None:
    """Route histc of vk tensors here; other devices keep Inductor's lowering."""
    from torchvk_compile.lowering.registry import route

    route(_aten.histc.default, _histc)
