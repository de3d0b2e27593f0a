"""Variances whose mean is far from zero: var, var_mean, and through them std and the normalisations.

In: ATen variances of vk tensors. Out: Inductor's reductions over distances from each row's first element.
Forbidden: reduction code.

A running mean in float32 is off by half a unit in its last place, which may be as large as the standard deviation.
Distances from an element of the row are exact where that is so, and lose nothing elsewhere (Chan, Golub and LeVeque,
"Algorithms for computing the sample variance", 1983). ATen's CPU kernels accumulate in float64 instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import full, lowerings, squeeze, to_dtype
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from torchvk_compile.codegen.dtypes import compute_dtype

_aten = torch.ops.aten

Moments = tuple[ir.TensorBox, ir.TensorBox]
Lowering = Callable[..., Any]


def register_variances() -> None:
    """Route the variances of vk tensors here; Inductor's lowerings do the reductions."""
    from torchvk_compile.lowering.registry import route

    of_distances = lowerings[_aten.var_mean.correction]
    route(_aten.var_mean.correction, _moments(of_distances))
    route(
        _aten.var.correction, lambda *args, **options: _moments(of_distances)(*args, **options)[0]
    )


def _moments(of_distances: Lowering) -> Callable[..., Moments]:
    def moments(
        x: ir.TensorBox,
        axis: Sequence[int] | None = None,
        *,
        correction: float | None = None,
        keepdim: bool = False,
    ) -> Moments:
        """Variance and mean of `x`, both NaN where there are no elements."""
        dtype, size = x.get_dtype(), x.get_size()
        reduced = sorted({d % len(size) for d in axis} if axis and size else range(len(size)))
        rows = [1 if d in reduced else extent for d, extent in enumerate(size)]
        if V.graph.sizevars.statically_known_equals(sympy_product(size), 0):
            shape = [s for d, s in enumerate(rows) if keepdim or d not in reduced]
            nothing = full(shape, torch.nan, dtype=dtype, device=x.get_device())
            return nothing, nothing
        wide = to_dtype(x, compute_dtype(dtype))
        first = _first_elements(wide, reduced, rows)
        distances = lowerings[_aten.sub.Tensor](wide, first)
        variance, mean = of_distances(distances, axis, correction=correction, keepdim=keepdim)
        shift = first if keepdim or not reduced else squeeze(first, reduced)
        return to_dtype(variance, dtype), to_dtype(lowerings[_aten.add.Tensor](mean, shift), dtype)

    return moments


def _first_elements(x: ir.TensorBox, reduced: Sequence[int], rows: Sequence[Any]) -> ir.TensorBox:
    """The first element of every row, 0 for one that is not finite: the mean of such a row is not NaN as a rule."""
    load, dtype = x.make_loader(), x.get_dtype()

    def first(index: Sequence[Any]) -> Any:
        value = load([0 if d in reduced else i for d, i in enumerate(index)])
        odd = ops.logical_or(ops.isnan(value), ops.isinf(value))
        return ops.where(odd, ops.constant(0.0, dtype), value)

    return ir.Pointwise.create(
        device=x.get_device(), dtype=dtype, inner_fn=first, ranges=list(rows)
    )
