"""Operators that jump: comparisons, roundings, tests and positions of extrema take 16-bit floats as they are stored.

In: such operators of vk tensors in float16 or bfloat16. Out: the lowerings there were, of rounded operands. Forbidden:
operators that are continuous; other devices.

Fused kernels compute these dtypes in float32 and round what they store. A value that is computed twice, once stored
and once on the way to a comparison, would differ from itself: the gradient of a maximum looks for elements equal to
it, and would find none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import ops

from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten
_NARROW = (torch.float16, torch.bfloat16)

_JUMPING = (
    *(_aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge),
    *(_aten.isnan, _aten.isinf, _aten.sign, _aten.signbit),
    *(_aten.floor, _aten.ceil, _aten.trunc, _aten.round),
    *(_aten.argmax, _aten.argmin),
)


def register_jumps() -> None:
    """Give the operators of this file rounded operands, on vk."""
    for packet in _JUMPING:
        for name in packet.overloads():
            overload = getattr(packet, name)
            if overload in lowerings:
                route(overload, _of_stored(lowerings[overload]))
    convert = torch.ops.prims.convert_element_type.default
    route(convert, _to_whole_numbers(lowerings[convert]))


def _of_stored(previous: Callable[..., Any]) -> Callable[..., Any]:
    def lowering(*args: Any, **kwargs: Any) -> Any:
        return previous(*(_stored(arg) for arg in args), **kwargs)

    return lowering


def _to_whole_numbers(previous: Callable[..., Any]) -> Callable[..., Any]:
    """Conversions to integers and booleans jump, those to other floats do not."""

    def convert(x: Any, dtype: torch.dtype) -> Any:
        return previous(x if dtype.is_floating_point else _stored(x), dtype)

    return convert


def _stored(x: Any) -> Any:
    """`x` with its elements rounded to its dtype; `x` itself where they come from memory or are no 16-bit floats."""
    if not isinstance(x, ir.TensorBox) or x.get_dtype() not in _NARROW or _is_input(x):
        return x
    load, dtype = x.make_loader(), x.get_dtype()

    def rounded(index: Sequence[sympy.Expr]) -> Any:
        return ops.to_dtype(load(index), dtype, src_dtype=torch.float32)

    return ir.Pointwise.create(
        device=x.get_device(), dtype=dtype, inner_fn=rounded, ranges=x.get_size()
    )


def _is_input(x: ir.TensorBox) -> bool:
    node: Any = x
    while isinstance(node, (ir.MutableBox, ir.BaseView)):
        node = node.data
    return isinstance(node, ir.InputBuffer)
