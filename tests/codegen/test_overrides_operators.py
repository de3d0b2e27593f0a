"""Pointwise operators, compiled: every dtype, limits and NaN, against CPU eager."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.codegen.common import pointwise_overrides_data
from torch._inductor.ops_handler import OP_NAMES

from torchvk_compile.codegen.overrides import SlangOverrides

Check = Callable[..., None]
NAN, INF = math.nan, math.inf
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
DTYPES = [torch.bool, *INTEGERS, *FLOATS]

# What kernels, not overrides, implement, and what belongs to other backends.
ELSEWHERE = {
    *("load", "store", "store_reduction", "reduction", "scan", "sort", "bucketize", "output"),
    *("partial_accumulate", "placeholder", "check_bounds", "device_assert_async", "dot"),
    *("indirect_indexing", "halide_clamp"),
}


def test_every_operation_is_implemented() -> None:
    missing = [n for n in OP_NAMES if SlangOverrides._is_unimplemented(n) and n not in ELSEWHERE]
    assert not missing
    assert not [n for n in pointwise_overrides_data if SlangOverrides._is_unimplemented(n)]


def special_floats(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, -7.25, 100.0, INF, -INF, NAN]
    return torch.tensor([*values, info.max, info.min, info.tiny, info.eps], dtype=dtype)


def special_integers(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    values = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100]
    values += [-1, -2, -3, -7] if info.min else []
    return torch.tensor(values, dtype=dtype)


def special_values(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False])
    return special_floats(dtype) if dtype.is_floating_point else special_integers(dtype)


def all_pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    values = special_values(dtype)
    grid = torch.cartesian_prod(torch.arange(len(values)), torch.arange(len(values)))
    return values[grid[:, 0]], values[grid[:, 1]]


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_conversions_between_all_dtypes(assert_close_like_cpu: Check, source: torch.dtype) -> None:
    x = special_values(source)
    if source.is_floating_point:
        # Eager's vectorised and scalar kernels disagree about integers out of range.
        x = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.75, -1.75, 3.0, 100.0, -100.0], dtype=source)
    assert_close_like_cpu(lambda v: tuple(v.to(t) for t in DTYPES), x, eager=False)
    if source.is_floating_point:
        targets = (torch.bool, *FLOATS)
        special = special_floats(source)
        assert_close_like_cpu(lambda v: tuple(v.to(t) for t in targets), special, eager=False)


SAME_SIZE = [
    pair
    for pair in itertools.permutations(DTYPES, 2)
    if pair[0].itemsize == pair[1].itemsize and torch.bool not in pair
]


def test_bit_conversions(assert_close_like_cpu: Check) -> None:
    for source, target in SAME_SIZE:
        x = special_values(source)
        # NaN's payload is not kept by every format, so numbers only.
        x = x[~x.isnan()] if source.is_floating_point else x
        view = lambda v, target=target: v.view(target).clone()  # noqa: E731
        assert_close_like_cpu(view, x, eager=False, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_order_with_nan(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        order = (torch.maximum(a, b), torch.minimum(a, b), torch.fmax(a, b), torch.fmin(a, b))
        clamped = (a.clamp(-1, 1), a.clamp_min(0.5), a.relu(), torch.clamp(a, b, b + 1), a.sign())
        tests = (a < b, a <= b, a > b, a >= b, a == b, a != b, a == a, a != a)
        return (*order, *clamped, *tests, a.isnan(), a.isinf(), a.isfinite(), a.signbit(), a - a)

    assert_close_like_cpu(f, *all_pairs(dtype), eager=False, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_float_arithmetic(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        basic = (a + b, a - b, a * b, a / b, -a, a.abs(), a.reciprocal(), a.square())
        rounded = (
            a.floor(),
            a.ceil(),
            a.trunc(),
            a.round(),
            torch.div(a, b, rounding_mode="trunc"),
        )
        parts = (torch.copysign(a, b), torch.nextafter(a, b), torch.hypot(a, b), torch.pow(a, b))
        return (*basic, *rounded, *parts, torch.ldexp(a, torch.tensor(3, device=a.device)))

    assert_close_like_cpu(f, *all_pairs(dtype), eager=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_float_remainders(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    a, b = torch.cartesian_prod(torch.arange(-20.0, 20, 1.7), torch.arange(-4.5, 5, 1.1)).T
    f = lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), x % 3.0)  # noqa: E731
    assert_close_like_cpu(f, a.to(dtype), b.to(dtype), eager=False, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic_wraps(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        basic = (a + b, a - b, a * b, -a, a.abs(), a.sign(), a.square(), torch.maximum(a, b))
        bits = (a & b, a | b, a ^ b, ~a, a < b, a == b, a.clamp(1, 5), a << 1, a >> 1)
        return (*basic, *bits, torch.minimum(a, b), a.float(), a / 2, torch.where(a > b, a, b))

    assert_close_like_cpu(f, *all_pairs(dtype), eager=False)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    a, b = all_pairs(dtype)
    # Eager raises for 0, and traps where the smallest value is divided by -1.
    keep = (b != 0) & (b != -1 if dtype.is_signed else torch.tensor(True))
    a, b = a[keep], b[keep]

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        quotients = [torch.div(x, y, rounding_mode=mode) for mode in ("floor", "trunc")]
        return (*quotients, torch.remainder(x, y), torch.fmod(x, y), x // 3, x % 3)

    assert_close_like_cpu(f, a, b, eager=False)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    a = special_integers(dtype)
    amounts = torch.arange(0, 8 * dtype.itemsize, dtype=dtype)
    grid = torch.cartesian_prod(torch.arange(len(a)), torch.arange(len(amounts)))
    x, s = a[grid[:, 0]], amounts[grid[:, 1]]
    f = lambda v, w: (torch.bitwise_left_shift(v, w), torch.bitwise_right_shift(v, w))  # noqa: E731
    assert_close_like_cpu(f, x, s, eager=False)


def test_bool_arithmetic(assert_close_like_cpu: Check) -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        logic = (a & b, a | b, a ^ b, ~a, a + b, a * b, a == b, a != b, a < b, a > b, a <= b)
        return (*logic, torch.maximum(a, b), torch.minimum(a, b), a.int() - b.int(), a.float() * 2)

    assert_close_like_cpu(f, *all_pairs(torch.bool), eager=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_user_casts_round(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 1001)
    f = lambda v: v - v.to(dtype).float()  # noqa: E731
    assert_close_like_cpu(f, x, eager=False, rtol=0, atol=0)


def test_frexp(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(lambda v: torch.frexp(v), special_floats(torch.float32)[:10], eager=False)


def test_masked_values(assert_close_like_cpu: Check) -> None:
    f = lambda v: torch.nn.functional.pad(v, (2, 3), value=-1.5) * 2  # noqa: E731
    for dtype in (torch.float32, torch.float16, torch.int64):
        pad = torch.arange(12, dtype=dtype).view(3, 4)
        value = -1 if dtype == torch.int64 else -1.5
        g = lambda v, value=value: torch.nn.functional.pad(v, (2, 3), value=value) * 2  # noqa: E731
        assert_close_like_cpu(g, pad, eager=False)
    assert_close_like_cpu(f, torch.ones(2, 2), eager=False)


def test_index_values_beyond_32_bits(assert_close_like_cpu: Check) -> None:
    def f(x: torch.Tensor) -> Any:
        wide = torch.arange(0, 2**35, 2**33, device=x.device)
        return wide + x.long(), torch.arange(4, device=x.device, dtype=torch.int32) * 3

    assert_close_like_cpu(f, torch.ones(4), eager=False)


def test_division_with_a_literal_zero(assert_close_like_cpu: Check) -> None:
    # torch.full keeps the front end from folding the quotient.
    def f(x: torch.Tensor) -> Any:
        zero = torch.full_like(x, 0.0)
        return x / zero, zero / x, x / -zero, torch.var(x[:1], 0)

    assert_close_like_cpu(f, special_floats(torch.float32), eager=False)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64], ids=str)
def test_integer_powers(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    base = torch.tensor([-7, -3, -2, -1, 0, 1, 2, 3, 10], dtype=dtype)[:, None]
    exponent = torch.arange(0, 12, dtype=dtype)

    def f(a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.pow(a, b), a**2, a**9, 2**b, torch.pow(3, b)

    assert_close_like_cpu(f, base, exponent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_floor_division_of_floats(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    a = torch.tensor([1.0, 0.5, 6.0, -7.5, 7.5, 0.0, -0.0, 100.25], dtype=dtype)[:, None]
    b = torch.tensor([0.1, 0.2, 1 / 3, -2.0, 3.0, INF], dtype=dtype)
    f = lambda x, y: (x // y, torch.div(x, y, rounding_mode="floor"), x // 0.1)  # noqa: E731
    assert_close_like_cpu(f, a, b, rtol=0, atol=0)
