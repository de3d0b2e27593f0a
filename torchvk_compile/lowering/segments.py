"""Reductions of consecutive rows: segment_reduce, forward and backward.

In: ATen segment reductions of vk tensors. Out: one segment kernel forward, gathers backward. Forbidden: reading lengths
on the host.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings, view
from torch._inductor.utils import sympy_product

from torchvk_compile.codegen.segment_reduction import SegmentReduction, reduce_segments
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.scan import running_sum

_aten = torch.ops.aten
_STARTS = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
"""What a reduction starts from, as ATen's (aten/src/ATen/native/SegmentReduce.cpp)."""


def register_segments() -> None:
    """Route the segment reductions of vk tensors here."""
    from torchvk_compile.lowering.registry import route

    route(_aten.segment_reduce.default, _segment_reduce)
    route_decomposition(_aten._segment_reduce_backward.default, _gradient)


def _segment_reduce(
    data: ir.TensorBox,
    reduce: str,
    *,
    lengths: ir.TensorBox | None = None,
    indices: Any = None,
    offsets: ir.TensorBox | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> ir.TensorBox:
    given = offsets if offsets is not None else lengths
    if given is None or indices is not None:
        raise UnsupportedOperatorError(
            "aten.segment_reduce", dtype=data.get_dtype(), reason="it needs lengths or offsets"
        )
    size, bounds = data.get_size(), given.get_size()
    batch, inner = size[:axis], size[axis + 1 :]
    flat = view(given, [sympy_product(batch), bounds[-1]])
    if offsets is None:
        flat = lowerings[_aten.constant_pad_nd](running_sum(flat, 1), [1, 0], 0)
    segments = bounds[-1] if offsets is None else bounds[-1] - 1
    start = _STARTS[reduce] if initial is None else float(initial)
    of_nothing = math.nan if reduce == "mean" and initial is None else start
    kind = SegmentReduction(
        "sum" if reduce == "mean" else reduce, reduce == "mean", initial=start, empty=of_nothing
    )
    rows = view(data, [sympy_product(batch), size[axis], sympy_product(inner)])
    result = reduce_segments(kind, rows, flat, segments=segments)
    return view(result, [*batch, segments, *inner])


def _gradient(
    grad: torch.Tensor,
    output: torch.Tensor,
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> torch.Tensor:
    """Gradient of the data; rows that are no segment's have none."""
    if offsets is None:
        assert lengths is not None
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    else:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    count = math.prod(data.shape[:axis])
    rows = data.reshape(count, data.shape[axis], -1)
    starts, ends = starts.reshape(count, -1), ends.reshape(count, -1)
    position = torch.arange(rows.shape[1], device=data.device).expand(count, rows.shape[1])
    # Empty segments end where they start, so the first end behind a row is its own segment's.
    segment = torch.searchsorted(ends.contiguous(), position.contiguous(), right=True)
    last = starts.shape[1] - 1
    if last < 0:
        return torch.zeros_like(data)
    inside = (segment <= last) & (position >= starts[:, :1])
    segment = segment.clamp_max(last)
    index = segment.unsqueeze(2).expand(rows.shape)

    def of_own(values: torch.Tensor) -> torch.Tensor:
        return values.reshape(count, last + 1, -1).gather(1, index)

    def summed(values: torch.Tensor) -> torch.Tensor:
        shape = (count, last + 1, rows.shape[2])
        zeros = torch.zeros(shape, dtype=values.dtype, device=values.device)
        return zeros.scatter_add(1, index, torch.where(inside.unsqueeze(2), values, 0))

    result = of_own(grad)
    if reduce == "mean":
        result = result / (ends - starts).gather(1, segment).unsqueeze(2)
    elif reduce in ("max", "min"):
        # Equal extrema share the gradient.
        chosen = (rows == of_own(output)) | rows.isnan()
        ties = of_own(summed(chosen.to(rows.dtype)))
        result = torch.where(chosen, result / ties, 0.0)
    elif reduce == "prod":
        special = (rows == 0) | rows.isnan()
        regular = torch.ones(
            (count, last + 1, rows.shape[2]), dtype=rows.dtype, device=rows.device
        ).scatter_reduce(1, index, torch.where(special | ~inside.unsqueeze(2), 1.0, rows), "prod")
        regular = of_own(regular) * (1.0 if initial is None else initial)
        zeros, nans = (
            of_own(summed(kind.to(torch.int32))) - kind.to(torch.int32)
            for kind in (rows == 0, rows.isnan())
        )
        others = torch.where(special, regular, regular / rows)
        others = torch.where(zeros > 0, 0.0, others)
        result = result * torch.where(nans > 0, torch.nan, others)
    return torch.where(inside.unsqueeze(2), result, 0.0).reshape(data.shape)
