"""Elementary functions of complex numbers.

In: ATen operators on complex tensors. Out: rules in `complex_table`. Forbidden: formulas that overflow, or lose more
than a few units in the last place, where the result does not.

Branch cuts, signed zeros and infinities follow C99, annex G. Sources: W. Kahan, "Branch cuts for complex elementary
functions", in The State of the Art in Numerical Analysis (1987), for roots, inverse functions and tanh.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.lowering.complex_arithmetic import (
    absolute,
    minus,
    over,
    plus,
    reciprocal,
    scaled,
    times,
)
from torchvk_compile.lowering.complex_table import (
    Pair,
    elementwise,
    join,
    parts,
    real_dtype,
    rule,
)

_aten = torch.ops.aten


def swapped(x: Pair) -> Pair:
    """i x, with which the circular functions become hyperbolic ones."""
    return -x[1], x[0]


def swapped_back(x: Pair) -> Pair:
    """-i x."""
    return x[1], -x[0]


def _infinite(x: Pair) -> torch.Tensor:
    return torch.isinf(x[0]) | torch.isinf(x[1])


# Exponential and logarithm -------------------------------------------------------------------------------------------


def exp(z: Pair) -> Pair:
    """e^z; a part may be finite where e^x is not."""
    x, y = z
    # e^x = e^(x - shift) e^shift, where the first factor meets the cosine before the second can overflow.
    shift = 64.0 if x.dtype != torch.float64 else 512.0
    large = x > shift
    length = torch.exp(torch.where(large, x - shift, x))
    rest = torch.where(large, math.exp(shift), 1.0)
    vanishes = length == 0  # whatever the angle is
    real = torch.where(vanishes, 0.0, length * torch.cos(y) * rest)
    imag = torch.where(vanishes | (y == 0), y * 0.0, length * torch.sin(y) * rest)
    unknown = torch.isinf(length) & ~torch.isfinite(y)
    return torch.where(unknown, length, real), torch.where(vanishes & ~torch.isfinite(y), 0.0, imag)


def expm1(z: Pair) -> Pair:
    """e^z - 1 without cancellation near 0."""
    x, y = z
    half = torch.sin(y * 0.5)
    return torch.expm1(x) * torch.cos(y) - 2.0 * half * half, torch.exp(x) * torch.sin(y)


def log_length(z: Pair) -> torch.Tensor:
    """ln |z|: near the unit circle from |z|² - 1, elsewhere from the larger part and the ratio of the two."""
    x, y = z[0].abs(), z[1].abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    near = (large > 0.5) & (large < 2.0)
    excess = torch.where(near, (large - 1.0) * (large + 1.0) + small * small, 0.0)
    ratio = torch.where(large == small, torch.where(large == 0, 0.0, 1.0), small / large)
    far = torch.log(large) + 0.5 * torch.log1p(ratio * ratio)
    return torch.where(_infinite(z), math.inf, torch.where(near, 0.5 * torch.log1p(excess), far))


def log(z: Pair) -> Pair:
    """ln z."""
    return log_length(z), torch.atan2(z[1], z[0])


def log1p(z: Pair) -> Pair:
    """ln(1 + z), accurate near 0."""
    x, y = z
    near = absolute(z) < 0.5
    length = torch.where(near, 0.5 * torch.log1p(x * (2.0 + x) + y * y), log_length((1.0 + x, y)))
    return length, torch.atan2(y, 1.0 + x)


def sigmoid(z: Pair) -> Pair:
    """1 / (1 + e^-z)."""
    return reciprocal(plus((1.0, 0.0), exp((-z[0], -z[1]))))


elementwise(_aten.exp)(exp)
elementwise(_aten.exp2)(lambda z: exp(scaled(z, math.log(2.0))))
elementwise(_aten.expm1)(expm1)
elementwise(_aten.log)(log)
elementwise(_aten.log2)(lambda z: scaled(log(z), 1.0 / math.log(2.0)))
elementwise(_aten.log10)(lambda z: scaled(log(z), 1.0 / math.log(10.0)))
elementwise(_aten.log1p)(log1p)
elementwise(_aten.sigmoid)(sigmoid)


@elementwise(_aten.logaddexp)
def logaddexp(a: Pair, b: Pair) -> Pair:
    """ln(e^a + e^b)."""
    swap = a[0] < b[0]
    large = torch.where(swap, b[0], a[0]), torch.where(swap, b[1], a[1])
    small = torch.where(swap, a[0], b[0]), torch.where(swap, a[1], b[1])
    return plus(large, log1p(exp(minus(small, large))))


# Circular and hyperbolic functions -----------------------------------------------------------------------------------


def _zero_or(factor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """factor times other, 0 where the factor is 0 although the other may be infinite."""
    finite = torch.where(torch.isinf(other), torch.copysign(torch.ones_like(other), other), other)
    return factor * torch.where(factor == 0, finite, other)


def sinh(z: Pair) -> Pair:
    """sinh x cos y + i cosh x sin y."""
    x, y = z
    return torch.sinh(x) * torch.cos(y), _zero_or(torch.sin(y), torch.cosh(x))


def cosh(z: Pair) -> Pair:
    """cosh x cos y + i sinh x sin y."""
    x, y = z
    return torch.cosh(x) * torch.cos(y), _zero_or(torch.sin(y), torch.sinh(x))


def tanh(z: Pair) -> Pair:
    """tanh z, after Kahan; beyond `limit` the real part is ±1."""
    x, y = z
    limit = 20.0 if x.dtype != torch.float64 else 40.0
    large = x.abs() > limit
    near = torch.where(large, 0.0, x)
    tangent = torch.tan(y)
    secant = 1.0 + tangent * tangent
    sine = torch.sinh(near)
    cosine = torch.sqrt(1.0 + sine * sine)
    denominator = 1.0 + secant * sine * sine
    faded = 4.0 * torch.sin(y) * torch.cos(y) * torch.exp(-2.0 * x.abs())
    faded = torch.where(torch.isinf(x), torch.copysign(torch.zeros_like(y), y), faded)
    one = torch.copysign(torch.ones_like(x), x)
    return (
        torch.where(large, one, secant * cosine * sine / denominator),
        torch.where(large, faded, tangent / denominator),
    )


elementwise(_aten.sinh)(sinh)
elementwise(_aten.cosh)(cosh)
elementwise(_aten.tanh)(tanh)
elementwise(_aten.sin)(lambda z: swapped_back(sinh(swapped(z))))
elementwise(_aten.cos)(lambda z: cosh(swapped(z)))
elementwise(_aten.tan)(lambda z: swapped_back(tanh(swapped(z))))


@elementwise(_aten.sinc)
def sinc(z: Pair) -> Pair:
    """sin(pi z) / (pi z), 1 at 0."""
    angle = scaled(z, math.pi)
    real, imag = over(swapped_back(sinh(swapped(angle))), angle)
    zero = (z[0] == 0) & (z[1] == 0)
    return torch.where(zero, 1.0, real), torch.where(zero, 0.0, imag)


# Roots and inverse functions -----------------------------------------------------------------------------------------


def sqrt(z: Pair) -> Pair:
    """The root with a real part that is not negative."""
    x, y = z
    limits = torch.finfo(x.dtype)
    largest = torch.maximum(x.abs(), y.abs())
    huge, tiny = largest > limits.max / 8, largest < limits.tiny * 4
    scale = torch.where(huge, 1.0 / 16, torch.where(tiny, 2.0**48, 1.0))
    back = torch.where(huge, 4.0, torch.where(tiny, 2.0**-24, 1.0))
    a, b = x * scale, y * scale
    root = torch.sqrt(0.5 * (a.abs() + torch.hypot(a, b))) * back
    other = torch.where(largest == 0, 0.0, b.abs() / (2.0 * root) * (back * back))
    right = a >= 0
    real, imag = torch.where(right, root, other), torch.where(right, other, root)
    infinite = torch.isinf(y)
    return (
        torch.where(infinite, math.inf, real),
        torch.where(infinite, y, torch.copysign(imag, y)),
    )


def rsqrt(z: Pair) -> Pair:
    """1 / sqrt(z)."""
    return reciprocal(sqrt(z))


def asin(z: Pair) -> Pair:
    """The angle in the strip |Re| <= pi/2."""
    x, y = z
    below, above = sqrt((1.0 - x, -y)), sqrt((1.0 + x, y))
    real = torch.atan2(x, below[0] * above[0] - below[1] * above[1])
    imag = torch.asinh(below[0] * above[1] - below[1] * above[0])
    far = _infinite(z)
    unbounded = torch.copysign(torch.full_like(y, math.inf), y)
    return torch.where(far, torch.atan2(x, y.abs()), real), torch.where(far, unbounded, imag)


def acos(z: Pair) -> Pair:
    """The angle in the strip 0 <= Re <= pi."""
    x, y = z
    below, above = sqrt((1.0 - x, -y)), sqrt((1.0 + x, y))
    real = 2.0 * torch.atan2(below[0], above[0])
    imag = torch.asinh(above[0] * below[1] - above[1] * below[0])
    far = _infinite(z)
    unbounded = -torch.copysign(torch.full_like(y, math.inf), y)
    return torch.where(far, torch.atan2(y.abs(), x), real), torch.where(far, unbounded, imag)


def acosh(z: Pair) -> Pair:
    """The value with a real part that is not negative."""
    x, y = z
    below, above = sqrt((x - 1.0, y)), sqrt((x + 1.0, y))
    real = torch.asinh(below[0] * above[0] + below[1] * above[1])
    imag = 2.0 * torch.atan2(below[1], above[0])
    far = _infinite(z)
    return torch.where(far, math.inf, real), torch.where(far, torch.atan2(y, x), imag)


def atanh(z: Pair) -> Pair:
    """The value in the strip |Im| <= pi/2."""
    x, y = z
    size = x.abs()
    far = torch.maximum(size, y.abs()) > torch.finfo(x.dtype).max ** 0.5 / 4
    gap = 1.0 - size
    real = 0.25 * torch.log1p(4.0 * size / (gap * gap + y * y))
    imag = 0.5 * torch.atan2(2.0 * y, gap * (1.0 + size) - y * y)
    inverse = reciprocal((torch.where(_infinite(z), 1.0, size), torch.where(_infinite(z), 0.0, y)))
    faded = torch.where(_infinite(z), 0.0, inverse[0])
    quarter = torch.copysign(torch.full_like(y, math.pi / 2), y)
    return (
        torch.copysign(torch.where(far, faded, real), x),
        torch.where(far, quarter, imag),
    )


elementwise(_aten.sqrt)(sqrt)
elementwise(_aten.rsqrt)(rsqrt)
elementwise(_aten.asin)(asin)
elementwise(_aten.acos)(acos)
elementwise(_aten.acosh)(acosh)
elementwise(_aten.atanh)(atanh)
elementwise(_aten.asinh)(lambda z: swapped_back(asin(swapped(z))))
elementwise(_aten.atan)(lambda z: swapped_back(atanh(swapped(z))))


# Powers --------------------------------------------------------------------------------------------------------------


def power(base: Pair, exponent: Pair) -> Pair:
    """base to the exponent, through logarithm and exponential; 0 to the 0 is 1, to positive exponents 0.

    An error of the logarithm counts many times in the result, so it is taken in float64 where the device has that.
    """
    dtype = base[0].dtype
    if dtype == torch.float32 and _has_float64(base[0].device):
        result = power(_as(base, torch.float64), _as(exponent, torch.float64))
        return _as(result, dtype)
    result = exp(times(exponent, log(base)))
    zero = (base[0] == 0) & (base[1] == 0)
    none = zero & (exponent[0] == 0) & (exponent[1] == 0)
    vanishes = zero & (exponent[0] > 0)
    real = torch.where(none, 1.0, torch.where(vanishes, 0.0, result[0]))
    return real, torch.where(none | vanishes, 0.0, result[1])


def _has_float64(device: torch.device) -> bool:
    return device.type != "vk" or profile_of(device.index or 0).float64


def _as(x: Pair, dtype: torch.dtype) -> Pair:
    return x[0].to(dtype), x[1].to(dtype)


def _full(pair: Pair) -> Pair:
    """Both parts as tensors."""
    like = pair[0] if isinstance(pair[0], torch.Tensor) else pair[1]
    real, imag = (p if isinstance(p, torch.Tensor) else torch.full_like(like, p) for p in pair)
    return real, imag


_SPECIAL_POWERS = {
    0.5: sqrt,
    -0.5: rsqrt,
    1.0: lambda z: z,
    2.0: lambda z: times(z, z),
    3.0: lambda z: times(times(z, z), z),
    -1.0: reciprocal,
    -2.0: lambda z: reciprocal(times(z, z)),
}
"""Exponents for which torch's CPU kernel does not take the logarithm either."""


@rule(_aten.pow.Tensor_Tensor, _aten.pow.Tensor_Scalar, _aten.pow.Scalar)
def pow(base: Any, exponent: Any) -> torch.Tensor:
    """`torch.pow`."""
    dtype = real_dtype(base, exponent)
    if not isinstance(exponent, torch.Tensor):
        number = complex(exponent)
        special = _SPECIAL_POWERS.get(number.real) if number.imag == 0 else None
        if special is not None:
            return join(special(_full(parts(base, dtype))))
        if number == 0:
            return join((torch.ones_like(parts(base, dtype)[0]), 0.0))
    whole = tuple(
        _full(parts(v, dtype)) if isinstance(v, torch.Tensor) else parts(v)
        for v in (base, exponent)
    )
    if not isinstance(base, torch.Tensor):
        whole = _full_like(whole[0], whole[1]), whole[1]
    if not isinstance(exponent, torch.Tensor):
        whole = whole[0], _full_like(whole[1], whole[0])
    return join(power(*whole))


def _full_like(number: Pair, like: Pair) -> Pair:
    return torch.full_like(like[0], number[0]), torch.full_like(like[0], number[1])


@rule(_aten.ldexp.Tensor)
def ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """x times 2 to the exponent."""
    return torch.mul(x, torch.pow(2.0, exponent))
