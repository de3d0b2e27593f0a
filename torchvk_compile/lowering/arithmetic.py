"""Integer powers, common divisors, floor division of floats, where Inductor falls back or rounds too early.

In: aten.pow, aten.gcd and aten.div of vk tensors. Out: pointwise loops over ops.pow, ops.floordiv and a function of
the integer library.
Forbidden: other powers and divisions, which stay Inductor's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import broadcast_tensors, get_promoted_dtype, lowerings, to_dtype
from torch._inductor.virtualized import ops
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, is_integer_dtype

from torchvk_compile.codegen.overrides import COMMON_DIVISOR
from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten
Lowering = Callable[..., Any]


def register_arithmetic() -> None:
    """Add the lowerings of this file to Inductor's table, for vk tensors."""
    for overload in (_aten.pow.Tensor_Tensor, _aten.pow.Tensor_Scalar, _aten.pow.Scalar):
        route(overload, _power(lowerings[overload]))
    for overload in (_aten.div.Tensor_mode, _aten.div.Scalar_mode):
        route(overload, _divide(lowerings[overload]))
    route(_aten.gcd.default, _common_divisor)


def _power(otherwise: Lowering) -> Lowering:
    def power(base: Any, exponent: Any) -> Any:
        # Inductor multiplies out fixed exponents, and eager refuses negative ones for integers.
        if not is_integer_dtype(_dtype(base, exponent)) or isinstance(exponent, (int, float)):
            return otherwise(base, exponent)
        return _pointwise(ops.pow, base, exponent)

    return power


def _divide(otherwise: Lowering) -> Lowering:
    def divide(dividend: Any, divisor: Any, rounding_mode: str | None = None) -> Any:
        floating = _dtype(dividend, divisor).is_floating_point
        if rounding_mode != "floor" or not floating:
            return otherwise(dividend, divisor, rounding_mode=rounding_mode)
        # The floor of a rounded quotient is one too large where the quotient rounds up to a whole number.
        return _pointwise(ops.floordiv, dividend, divisor)

    return divide


def _common_divisor(a: ir.TensorBox, b: ir.TensorBox) -> ir.TensorBox:
    dtype = _dtype(a, b)
    divisor = functools.partial(ops.inline_asm_elementwise, asm=COMMON_DIVISOR, dtype=dtype)
    return _pointwise(divisor, a, b)


def _dtype(*operands: Any) -> torch.dtype:
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    return get_promoted_dtype(*operands, type_promotion_kind=kind)


def _pointwise(operation: Callable[..., Any], *operands: Any) -> ir.TensorBox:
    """`operation` on broadcast tensors and Python numbers, in their common dtype."""
    dtype = _dtype(*operands)
    tensors = [to_dtype(x, dtype) for x in operands if isinstance(x, ir.TensorBox)]
    tensors = broadcast_tensors(*tensors)
    remaining = iter([tensor.make_loader() for tensor in tensors])
    loaders = [
        next(remaining) if isinstance(x, ir.TensorBox) else _constant(x, dtype) for x in operands
    ]
    return ir.Pointwise.create(
        device=tensors[0].get_device(),
        dtype=dtype,
        inner_fn=lambda index: operation(*(load(index) for load in loaders)),
        ranges=tensors[0].get_size(),
    )


def _constant(value: Any, dtype: torch.dtype) -> Callable[[Any], Any]:
    if isinstance(value, sympy.Basic):
        return lambda index: ops.value_expr(value, dtype)
    return lambda index: ops.constant(value, dtype)
