"""Sums, products, quotients and powers of complex numbers, and what reduces them.

In: ATen operators on complex tensors. Out: rules in `complex_table`. Forbidden: transcendental functions of complex
numbers (`complex_functions`), except that powers use them.
"""

from __future__ import annotations

from typing import Any

import torch

from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.complex_table import (
    Pair,
    elementwise,
    is_complex,
    join,
    parts,
    real_dtype,
    rule,
)

_aten = torch.ops.aten


def plus(a: Pair, b: Pair) -> Pair:
    """a + b."""
    return a[0] + b[0], a[1] + b[1]


def minus(a: Pair, b: Pair) -> Pair:
    """a - b."""
    return a[0] - b[0], a[1] - b[1]


def times(a: Pair, b: Pair) -> Pair:
    """a b, by the definition, as torch's CPU kernels do: an infinite factor may give NaN."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def scaled(a: Pair, factor: Any) -> Pair:
    """a times a real factor."""
    return a[0] * factor, a[1] * factor


def over(a: Pair, b: Pair) -> Pair:
    """a / b by Smith's method (Communications of the ACM 5, 1962, algorithm 116), which does not overflow on the way.

    Division by zero divides both parts by zero.
    """
    c, d = (part if isinstance(part, torch.Tensor) else _like(a, part) for part in b)
    by_real = c.abs() >= d.abs()
    large, small = torch.where(by_real, c, d), torch.where(by_real, d, c)
    zero = (c == 0) & (d == 0)
    ratio = torch.where(zero, 0.0, small / large)
    denominator = torch.where(zero, c.abs(), large + small * ratio)
    first, second = torch.where(by_real, a[0], a[1]), torch.where(by_real, a[1], a[0])
    real = first + second * ratio
    imag = second - first * ratio
    return real / denominator, torch.where(by_real, imag, -imag) / denominator


def _like(pair: Pair, value: float) -> torch.Tensor:
    like = pair[0] if isinstance(pair[0], torch.Tensor) else pair[1]
    return torch.full_like(like, value)


def reciprocal(x: Pair) -> Pair:
    """1 / x."""
    return over((torch.ones_like(x[0]), torch.zeros_like(x[0])), x)


def absolute(x: Pair) -> torch.Tensor:
    """|x|, without overflow on the way."""
    return torch.hypot(*x)


# Rules ---------------------------------------------------------------------------------------------------------------


def _alpha(value: Any, alpha: Any) -> Any:
    return value if isinstance(alpha, (int, float)) and alpha == 1 else torch.mul(value, alpha)


@rule(_aten.add)
def add(a: Any, b: Any, alpha: Any = 1) -> torch.Tensor:
    """a + alpha b."""
    dtype = real_dtype(a, b)
    return join(plus(parts(a, dtype), parts(_alpha(b, alpha), dtype)))


@rule(_aten.sub)
def sub(a: Any, b: Any, alpha: Any = 1) -> torch.Tensor:
    """a - alpha b."""
    dtype = real_dtype(a, b)
    return join(minus(parts(a, dtype), parts(_alpha(b, alpha), dtype)))


@rule(_aten.rsub)
def rsub(a: Any, b: Any, alpha: Any = 1) -> torch.Tensor:
    """b - alpha a."""
    dtype = real_dtype(a, b)
    return join(minus(parts(b, dtype), parts(_alpha(a, alpha), dtype)))


elementwise(_aten.mul)(times)
elementwise(_aten.reciprocal)(reciprocal)
elementwise(_aten.abs, returns_real=True)(absolute)


@rule(_aten.div)
def div(a: Any, b: Any, rounding_mode: str | None = None) -> torch.Tensor:
    """a / b; a real divisor divides both parts."""
    if rounding_mode is not None:
        raise UnsupportedOperatorError(
            "aten.div.Tensor_mode", dtype=a.dtype, reason="complex quotients are not rounded"
        )
    dtype = real_dtype(a, b)
    if not is_complex(b):
        divisor = parts(b, dtype)[0]
        real, imag = parts(a, dtype)
        return join((real / divisor, imag / divisor))
    return join(over(parts(a, dtype), parts(b, dtype)))


@elementwise(_aten.square)
def square(x: Pair) -> Pair:
    """x x."""
    return times(x, x)


@rule(_aten.addcmul)
def addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> torch.Tensor:
    """x + value a b."""
    dtype = real_dtype(x, a, b)
    product = times(parts(_alpha(a, value), dtype), parts(b, dtype))
    return join(plus(parts(x, dtype), product))


@rule(_aten.addcdiv)
def addcdiv(x: Any, a: Any, b: Any, value: Any = 1) -> torch.Tensor:
    """x + value a / b."""
    dtype = real_dtype(x, a, b)
    quotient = over(parts(_alpha(a, value), dtype), parts(b, dtype))
    return join(plus(parts(x, dtype), quotient))


@rule(_aten.lerp)
def lerp(start: Any, end: Any, weight: Any) -> torch.Tensor:
    """start + weight (end - start), exact at both ends (aten/src/ATen/native/Lerp.h)."""
    dtype = real_dtype(start, end)
    a, b, w = parts(start, dtype), parts(end, dtype), parts(weight, dtype)
    difference = minus(b, a)
    near_start = plus(a, times(w, difference))
    near_end = minus(b, times(minus((1.0, 0.0), _tensors(w, a)), difference))
    weight_size = absolute(_tensors(w, a))
    low = weight_size < 0.5
    return join(tuple(torch.where(low, s, e) for s, e in zip(near_start, near_end, strict=True)))  # type: ignore[arg-type]


def _tensors(x: Pair, like: Pair) -> Pair:
    real, imag = x
    if not isinstance(real, torch.Tensor):
        real = torch.full_like(like[0], real)
    return real, imag if isinstance(imag, torch.Tensor) else torch.full_like(real, imag)


@elementwise(_aten.angle, returns_real=True)
def angle(x: Pair) -> torch.Tensor:
    """The angle of x against the positive real numbers."""
    return torch.atan2(x[1], x[0])


@elementwise(_aten.sgn)
def sgn(x: Pair) -> Pair:
    """x / |x|, or 0."""
    length = absolute(x)
    zero = length == 0
    return torch.where(zero, 0.0, x[0] / length), torch.where(zero, 0.0, x[1] / length)


# Reductions ----------------------------------------------------------------------------------------------------------


@rule(_aten.linalg_vector_norm.default)
def vector_norm(x: torch.Tensor, *args: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The norm of the absolute values; `dtype` may be the complex one of the result."""
    if dtype is not None and not x.dtype.is_complex:
        x = x.to(dtype)
    wanted = None if dtype is None else real_dtype(torch.empty((), dtype=dtype, device="meta"))
    return torch.ops.aten.linalg_vector_norm.default(absolute(parts(x, wanted)), *args)


@rule(_aten.norm)
def norm(x: torch.Tensor, p: Any = 2, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.norm` of the absolute values."""
    if kwargs.get("dtype") is not None and kwargs["dtype"].is_complex:
        kwargs["dtype"] = real_dtype(torch.empty((), dtype=kwargs["dtype"], device="meta"))
    return _aten.norm(absolute(parts(x)), 2 if p is None else p, *args, **kwargs)


@rule(_aten.var.correction)
def var(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The variance of a complex number is that of its parts together."""
    real, imag = parts(x)
    return _aten.var.correction(real, *args, **kwargs) + _aten.var.correction(imag, *args, **kwargs)


@rule(_aten.var_mean.correction)
def var_mean(
    x: torch.Tensor, dim: Any = None, *, keepdim: bool = False, correction: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.var_mean`."""
    mean = _aten.mean.dim(x, dim, keepdim)
    return var(x, dim, keepdim=keepdim, correction=correction), mean


@rule(_aten.std.correction)
def std(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The root of the variance."""
    return torch.sqrt(var(x, *args, **kwargs))


@rule(_aten.std_mean.correction)
def std_mean(x: torch.Tensor, dim: Any = None, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.std_mean`."""
    variance, mean = var_mean(x, dim, **options)
    return torch.sqrt(variance), mean


@rule(_aten.nan_to_num.default)
def nan_to_num(x: torch.Tensor, *args: Any) -> torch.Tensor:
    """`torch.nan_to_num` of both parts."""
    real, imag = (_aten.nan_to_num.default(part, *args) for part in parts(x))
    return join((real, imag))


# Gradients whose ATen operators are their own ------------------------------------------------------------------------


@elementwise(_aten.tanh_backward)
def tanh_backward(grad: Pair, result: Pair) -> Pair:
    """grad conj(1 - tanh²)."""
    real, imag = minus((1.0, 0.0), times(result, result))
    return times(grad, (real, -imag))


@elementwise(_aten.sigmoid_backward)
def sigmoid_backward(grad: Pair, result: Pair) -> Pair:
    """grad conj(s (1 - s))."""
    real, imag = times(result, minus((1.0, 0.0), result))
    return times(grad, (real, -imag))
