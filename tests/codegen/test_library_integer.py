"""Integer arithmetic, conversions and 16-bit formats, exactly as torch's CPU kernels or Python."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from shader_functions import evaluate, every_exponent

INTEGERS = [np.int32, np.int64, np.uint32, np.uint64]


def wrapped(value: int, dtype: type) -> int:
    info = np.iinfo(dtype)
    value %= 1 << info.bits
    return value - (1 << info.bits) if info.min < 0 and value > info.max else value


def operand_pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(dtype)
    limits = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1]
    limits += [-1, -2, -3, -7] if info.min < 0 else []
    grid = np.meshgrid(np.array(limits, dtype), np.array(limits, dtype))
    generator = np.random.default_rng(0)
    low = -20 if info.min < 0 else 0
    columns = [
        np.concatenate(
            [
                part.ravel(),
                generator.integers(info.min, info.max, 1000, dtype=dtype),
                generator.integers(low, 20, 1000).astype(dtype),
            ]
        )
        for part in grid
    ]
    return columns[0], columns[1]


def _truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0


DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "floorDiv": lambda x, y: x // y if y else 0,
    "floorMod": lambda x, y: x % y if y else x,
    "truncDiv": _truncated,
    "truncMod": lambda x, y: x - _truncated(x, y) * y if y else x,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("function", DIVISIONS)
def test_division_never_traps_and_rounds_as_named(function: str, dtype: type) -> None:
    a, b = operand_pairs(dtype)
    actual = evaluate(f"{function}(a, b)", a, b, result=dtype, modules=["torchvk_integer"])
    for x, y, value in zip(a.tolist(), b.tolist(), actual.tolist()):
        assert value == wrapped(DIVISIONS[function](x, y), dtype), (function, x, y)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_index_division_of_non_negative_numbers(dtype: type) -> None:
    a, b = (np.abs(np.maximum(column, -np.iinfo(dtype).max)) for column in operand_pairs(dtype))
    b = np.maximum(b, 1)
    modules = ["torchvk_integer"]
    assert (evaluate("indexDiv(a, b)", a, b, result=dtype, modules=modules) == a // b).all()
    assert (evaluate("indexMod(a, b)", a, b, result=dtype, modules=modules) == a % b).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_power_wraps_and_takes_negative_exponents(dtype: type) -> None:
    a, b = operand_pairs(dtype)
    b = (b % 70 - 5).astype(dtype)
    actual = evaluate("power(a, b)", a, b, result=dtype, modules=["torchvk_integer"])
    for x, y, value in zip(a.tolist(), b.tolist(), actual.tolist()):
        inverse = {1: 1, -1: 1 - 2 * (y & 1)}.get(x, 0)
        assert value == (wrapped(x**y, dtype) if y >= 0 else inverse), (x, y)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_common_divisors(dtype: type) -> None:
    a, b = operand_pairs(dtype)
    function = "greatestCommonDivisor"
    actual = evaluate(f"{function}(a, b)", a, b, result=dtype, modules=["torchvk_integer"])
    for x, y, value in zip(a.tolist(), b.tolist(), actual.tolist()):
        assert value == wrapped(math.gcd(x, y), dtype), (x, y)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("function", ["shiftLeft", "shiftRight"])
def test_shifts_beyond_the_width_and_by_negative_amounts(function: str, dtype: type) -> None:
    a, b = operand_pairs(dtype)
    b = (b % 80 - 10).astype(dtype)
    bits = np.iinfo(dtype).bits
    expression = f"{function}(a, b, {bits})"
    actual = evaluate(expression, a, b, result=dtype, modules=["torchvk_integer"])
    shift = torch.bitwise_left_shift if function == "shiftLeft" else torch.bitwise_right_shift
    # One element at a time: torch's vectorised kernels shift differently beyond the width.
    expected = [shift(x, y).item() for x, y in zip(torch.from_numpy(a), torch.from_numpy(b))]
    assert actual.tolist() == expected


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"])
def test_float_to_integer_conversions(source: type, target: str) -> None:
    generator = np.random.default_rng(0)
    wide = generator.standard_normal(3000) * 10.0 ** generator.uniform(-3, 20, 3000)
    edges = [2147483647, 2147483648, -2147483648, -2147483904, 9.223372e18, 9.3e18, -9.3e18, 1.8e19]
    edges += [300, -1.5, -129, 255.9, 256, 65536.5, 1e-30, 0.0, -0.0, np.nan, np.inf, -np.inf]
    x = np.concatenate([edges, wide]).astype(source)
    expression = f"floatTo{target.capitalize()}(a)"
    actual = evaluate(expression, x, result=target, modules=["torchvk_cast"])
    expected = torch.from_numpy(x).to(getattr(torch, target)).numpy()
    at = int(np.argmin(actual == expected))
    assert (actual == expected).all(), f"{x[at]!r}: {actual[at]}, expected {expected[at]}"


def test_float_to_bool() -> None:
    x = every_exponent(np.float32, 1000)
    actual = evaluate("select(floatToBool(a), 1, 0)", x, result=np.int32, modules=["torchvk_cast"])
    assert (actual == torch.from_numpy(x).bool().int().numpy()).all()


# ---- half and bfloat16 ---------------------------------------------------------------------------


def test_every_half_and_bfloat16_is_read_exactly() -> None:
    bits = np.arange(65536).astype(np.uint16)
    modules = ["torchvk_memory"]
    half = evaluate("halfToFloat(a)", bits, result=np.float32, modules=modules)
    assert np.array_equal(half, bits.view(np.float16).astype(np.float32), equal_nan=True)
    back = evaluate("floatToHalf(halfToFloat(a))", bits, result=np.uint16, modules=modules)
    assert (back == bits)[~np.isnan(bits.view(np.float16))].all()
    back = evaluate("floatToBfloat(bfloatToFloat(a))", bits, result=np.uint16, modules=modules)
    assert (back == bits).all()


@pytest.mark.parametrize(("name", "dtype"), [("Half", torch.float16), ("Bfloat", torch.bfloat16)])
def test_rounding_to_16_bits_is_to_nearest_even(name: str, dtype: torch.dtype) -> None:
    halfway = (np.arange(0, 70_000) + 0.5).astype(np.float32) * np.float32(2.0**-25)
    x = np.concatenate([every_exponent(np.float32), halfway, [65519.99, 65520, 65536, 2.98e-8]])
    x = x.astype(np.float32)
    actual = evaluate(f"floatTo{name}(a)", x, result=np.uint16, modules=["torchvk_memory"])
    expected = torch.from_numpy(x).to(dtype).view(torch.int16).numpy().view(np.uint16)
    numbers = ~np.isnan(x)
    assert (actual == expected)[numbers].all()
    values = torch.from_numpy(actual[~numbers].view(np.int16)).view(dtype)
    assert values.isnan().all()
