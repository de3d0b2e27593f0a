"""`torchvk::window_sum`: sums over windows along one dimension.

In: a tensor, and where its windows are. Out: an operator, and its lowering to loops of one invocation per sum.
Forbidden: products with zeros in place of a selection, which would spread a NaN or an infinity to windows that do not
have it; Slang text.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import ops
from torch.utils._sympy.functions import CeilDiv

_MOST_TERMS = 16
"""Elements of a window up to which its sum is written out; of longer ones a loop's step has so many."""

_FEW_TERMS = 4
"""Elements of a window up to which an element that is computed from one other is not stored first."""

_library = torch.library.Library("torchvk", "FRAGMENT")
_library.define(
    "window_sum(Tensor x, int dimension, Tensor first, Tensor last, SymInt reach) -> Tensor"
)


def window_sum(
    x: torch.Tensor,
    dimension: int,
    first: torch.Tensor,
    last: torch.Tensor,
    *,
    reach: Any,
) -> torch.Tensor:
    """Sums along `dimension`.

    Args:
        x: (*outer, extent, *inner), floats.
        first: (windows): the first element of each window, not below 0. What computes int32 numbers becomes part of the
            addresses; int64 ones are stored first.
        last: (windows), of the same dtype: the element behind the last one, at most `extent`.
        reach: elements of the longest window.

    Returns:
        (*outer, windows, *inner) in `accumulator(x.dtype)`.
    """
    return torch.ops.torchvk.window_sum.default(x, dimension, first, last, reach)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """What sums of elements of `dtype` are computed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def whole_numbers(count: Any, largest: Any, device: torch.device) -> torch.Tensor:
    """0, 1, 2 …, `count` of them, in 32 bits where `largest`, what is computed from them, is known to fit."""
    narrow = isinstance(largest, int) and largest < 2**31
    return torch.arange(count, dtype=torch.int32 if narrow else torch.int64, device=device)


def from_zero(x: torch.Tensor) -> torch.Tensor:
    """Whole numbers, 0 in place of those below.

    Not written as a maximum: Inductor (torch 2.11 to 2.13) fails on addresses with a quotient of one.
    """
    return -(-x).clamp_max(0)


def beside(x: torch.Tensor, inner: int) -> torch.Tensor:
    """`x` with `inner` dimensions of size 1 behind its own."""
    return x.reshape(*x.shape, *[1] * inner)


def _shape(
    x: torch.Tensor, dimension: int, first: torch.Tensor, last: torch.Tensor, reach: Any
) -> torch.Tensor:
    size = [*x.shape[:dimension], first.shape[0], *x.shape[dimension + 1 :]]
    return x.new_empty(size, dtype=accumulator(x.dtype))


def _on_cpu(
    x: torch.Tensor,
    dimension: int,
    first: torch.Tensor,
    last: torch.Tensor,
    reach: int,
) -> torch.Tensor:
    inner = x.dim() - dimension - 1
    number = first.unsqueeze(1) + torch.arange(reach, dtype=first.dtype)
    index = number.clamp_max(x.shape[dimension] - 1).reshape(-1)
    shape = [*x.shape[:dimension], *number.shape, *x.shape[dimension + 1 :]]
    values = x.to(accumulator(x.dtype)).index_select(dimension, index).reshape(shape)
    inside = number < last.unsqueeze(1)
    return torch.where(beside(inside, inner), values, 0).sum(dimension + 1)


_library.impl("window_sum", _shape, "Meta")
_library.impl("window_sum", _on_cpu, "CPU")


def _lower(x: Any, dimension: int, first: Any, last: Any, reach: Any) -> ir.TensorBox:
    dtype = accumulator(x.get_dtype())
    extent, static = x.get_size()[dimension], sympy.sympify(reach)
    if static.is_Integer and static <= _FEW_TERMS:
        # What one element is computed from is computed again for each of its windows.
        x.realize_hint()
    else:
        x.realize()
    if first.get_dtype() is torch.int64:
        first.realize()
    load, load_first, load_last = (value.make_loader() for value in (x, first, last))
    whole = first.get_dtype()

    def term(index: Sequence[sympy.Expr], k: sympy.Expr) -> Any:
        window = index[dimension]
        number = ops.add(load_first([window]), ops.index_expr(k, whole))
        place = ops.minimum(number, ops.index_expr(extent - 1, whole))
        at = ops.indirect_indexing(place, extent, check=False, wrap_neg=False)
        value = ops.to_dtype(load([*index[:dimension], at, *index[dimension + 1 :]]), dtype)
        inside = ops.lt(number, load_last([window]))
        return ops.where(inside, value, ops.constant(0.0, dtype))

    ranges = [*x.get_size()]
    ranges[dimension] = first.get_size()[0]
    if static.is_Integer and static <= _MOST_TERMS:

        def written_out(index: Sequence[sympy.Expr]) -> Any:
            terms = (term(index, sympy.Integer(k)) for k in range(int(static)))
            return functools.reduce(ops.add, terms)

        return ir.Pointwise.create(
            device=x.get_device(), dtype=dtype, inner_fn=written_out, ranges=ranges
        )

    def step(index: Sequence[sympy.Expr], reduced: Sequence[sympy.Expr]) -> Any:
        terms = []
        for k in range(_MOST_TERMS):
            number = reduced[0] * _MOST_TERMS + k
            value = term(index, sympy.Min(number, static - 1))
            exists = ops.lt(
                ops.index_expr(number, torch.int64), ops.index_expr(static, torch.int64)
            )
            terms.append(ops.where(exists, value, ops.constant(0.0, dtype)))
        return functools.reduce(ops.add, terms)

    result = ir.Reduction.create(
        device=x.get_device(),
        dst_dtype=dtype,
        src_dtype=dtype,
        inner_fn=step,
        ranges=ranges,
        reduction_ranges=[CeilDiv(static, _MOST_TERMS)],
        reduction_type="sum",
    )
    result.realize()
    return result


def register_windows() -> None:
    """Lower the operator on vk tensors."""
    from torchvk_compile.lowering.registry import route

    route(torch.ops.torchvk.window_sum.default, _lower)
