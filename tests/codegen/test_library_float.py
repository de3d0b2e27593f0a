"""Elementary functions of float: errors in ulp against torch in float64, limits and NaN exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shader_functions import (
    as_on_device,
    evaluate,
    every_exponent,
    pairs,
    ulp_errors,
    with_torch,
    worst,
)

from torchvk_compile.codegen.device_profile import fuses_multiply_add
from torchvk_compile.device import runtime_device

# Function, largest error in ulp, module. Drivers without fused multiply-add are the worst case.
UNARY = [
    ("exp", 1.0, "torchvk_exponential"),
    ("exp2", 1.3, "torchvk_exponential"),
    ("expm1", 1.6, "torchvk_exponential"),
    ("sigmoid", 2.3, "torchvk_exponential"),
    ("log", 1.0, "torchvk_exponential"),
    ("log2", 1.0, "torchvk_exponential"),
    ("log10", 1.0, "torchvk_exponential"),
    ("log1p", 1.0, "torchvk_exponential"),
    ("sinh", 2.7, "torchvk_exponential"),
    ("cosh", 2.7, "torchvk_exponential"),
    ("tanh", 1.5, "torchvk_exponential"),
    ("asinh", 2.0, "torchvk_exponential"),
    ("acosh", 2.0, "torchvk_exponential"),
    ("atanh", 2.0, "torchvk_exponential"),
    ("sin", 2.5, "torchvk_trigonometry"),
    ("cos", 2.5, "torchvk_trigonometry"),
    ("tan", 3.5, "torchvk_trigonometry"),
    ("asin", 2.5, "torchvk_trigonometry"),
    ("acos", 1.5, "torchvk_trigonometry"),
    ("atan", 1.5, "torchvk_trigonometry"),
    ("erf", 1.5, "torchvk_error_functions"),
    ("erfc", 4.0, "torchvk_error_functions"),
    ("sqrt", 0.5001, "torchvk_math"),
    ("rsqrt", 1.5, "torchvk_math"),
]


def name_of(function: str) -> str:
    """The Slang name of a library function."""
    return "torch" + "".join(part.capitalize() for part in function.split("_"))


@pytest.mark.parametrize(("function", "bound", "module"), UNARY)
def test_unary_functions(function: str, bound: float, module: str) -> None:
    x = every_exponent(np.float32)
    actual = evaluate(f"{name_of(function)}(a)", x, result=np.float32, modules=[module])
    exact = with_torch(getattr(torch, function))(x.astype(np.float64))
    errors = ulp_errors(actual, exact)
    assert errors.max() <= bound, f"{function}: {worst(errors, actual, exact, x)}"
    zeros = (exact == 0) & (actual == 0)
    assert (np.signbit(exact) == np.signbit(actual))[zeros].all(), f"{function}: sign of zero"


@pytest.mark.parametrize("near_multiple", [1, 1000, 123_457, 2**22 + 3])
def test_sine_and_cosine_near_multiples_of_half_pi(near_multiple: int) -> None:
    k = near_multiple + np.arange(2000)
    x = (k * (np.pi / 2)).astype(np.float32)
    for function in ("sin", "cos", "tan"):
        expression = f"{name_of(function)}(a)"
        actual = evaluate(expression, x, result=np.float32, modules=["torchvk_trigonometry"])
        exact = getattr(np, function)(x.astype(np.float64))
        errors = ulp_errors(actual, exact)
        assert errors.max() <= 3.5, f"{function}: {worst(errors, actual, exact, x)}"


BINARY = [
    ("pow", 1.3, "torchvk_exponential", torch.pow),
    ("atan2", 2.0, "torchvk_trigonometry", torch.atan2),
    ("hypot", 1.5, "torchvk_math", torch.hypot),
]


@pytest.mark.parametrize(("function", "bound", "module", "reference"), BINARY)
def test_binary_functions(function: str, bound: float, module: str, reference: object) -> None:
    a, b = pairs(np.float32)
    generator = np.random.default_rng(3)
    # Bases near 1 with large exponents, and negative bases with whole ones.
    bases = [generator.uniform(0.999, 1.001, 5000), -generator.integers(1, 20, 5000)]
    exponents = [generator.uniform(-9e4, 9e4, 5000), generator.integers(-20, 20, 5000)]
    a = np.concatenate([a, *(part.astype(np.float32) for part in bases)])
    b = np.concatenate([b, *(part.astype(np.float32) for part in exponents)])
    actual = evaluate(f"{name_of(function)}(a, b)", a, b, result=np.float32, modules=[module])
    exact = with_torch(reference)(a.astype(np.float64), b.astype(np.float64))  # type: ignore[arg-type]
    errors = ulp_errors(actual, exact)
    assert errors.max() <= bound, f"{function}: {worst(errors, actual, exact, a, b)}"


# ---- exact functions -----------------------------------------------------------------------------


def assert_same_bits(actual: np.ndarray, expected: np.ndarray, *operands: np.ndarray) -> None:
    actual, expected = as_on_device(actual), as_on_device(expected)
    unsigned = f"u{actual.itemsize}"
    same = (actual.view(unsigned) == expected.view(unsigned)) | (
        np.isnan(actual) & np.isnan(expected)
    )
    at = int(np.argmin(same))
    arguments = ", ".join(repr(operand[at].item()) for operand in operands)
    assert same.all(), f"({arguments}): {actual[at]!r}, expected {expected[at]!r}"


FLOOR = "floor"
EXACT = [
    # Of two zeros torch's own loops take either, by position in the tensor; its clamp and relu take the first.
    ("maximum(a, b)", with_torch(lambda x, y: torch.where(x == y, x, torch.maximum(x, y)))),
    ("minimum(a, b)", with_torch(lambda x, y: torch.where(x == y, x, torch.minimum(x, y)))),
    ("torchDivide(a, b)", np.divide),
    ("torchTruncMod(a, b)", np.fmod),
    (
        "torchFloorDiv(a, b)",
        with_torch(lambda x, y: torch.div(x, y, rounding_mode=FLOOR)),
    ),
    ("torchNextafter(a, b)", np.nextafter),
    ("torchCopysign(a, b)", np.copysign),
    ("torchFrexpMantissa(a)", lambda x, y: np.frexp(x)[0]),
]


def test_quotients_by_fused_multiply_add() -> None:
    """Rounded to nearest where the device fuses; a driver that rounds twice may be 1.5 ulp off."""
    a, b = pairs(np.float32)
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) / b.astype(np.float64)
    actual = evaluate("torchDivideFused(a, b)", a, b, result=np.float32, modules=["torchvk_math"])
    errors = ulp_errors(actual, exact)
    assert errors.max() <= 1.5, worst(errors, actual, exact, a, b)
    if fuses_multiply_add(runtime_device(0).profile):
        # Of smaller dividends the residue is subnormal, which a device may flush.
        normal = np.abs(a) > 1e-29
        assert errors[normal].max() <= 0.5, worst(errors * normal, actual, exact, a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("expression", "reference"), EXACT)
def test_exact_functions(expression: str, reference: object, dtype: type) -> None:
    a, b = pairs(dtype, 10_000)
    modules = ["torchvk_math"] + (["torchvk_math64"] if dtype is np.float64 else [])
    actual = evaluate(expression, a, b, result=dtype, modules=modules)
    with np.errstate(all="ignore"):
        expected = reference(a, b)  # type: ignore[operator]
    assert_same_bits(actual, expected, a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainder_has_the_sign_of_the_divisor(dtype: type) -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.uniform(-1000, 1000, 20_000).astype(dtype) for _ in range(2))
    modules = ["torchvk_math" if dtype is np.float32 else "torchvk_math64"]
    actual = evaluate("torchFloorMod(a, b)", a, b, result=dtype, modules=modules)
    assert_same_bits(actual, with_torch(torch.remainder)(a, b), a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ldexp_rounds_once(dtype: type) -> None:
    x = every_exponent(dtype, 5000)
    shift = np.random.default_rng(2).integers(-2200, 2200, len(x)).astype(np.int32)
    modules = ["torchvk_math" if dtype is np.float32 else "torchvk_math64"]
    actual = evaluate("torchLdexp(a, b)", x, shift, result=dtype, modules=modules)
    with np.errstate(all="ignore"):
        assert_same_bits(actual, np.ldexp(x, shift), x, shift)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_frexp_exponent(dtype: type) -> None:
    x = every_exponent(dtype, 5000)
    x = x[np.isfinite(x)]
    modules = ["torchvk_math" if dtype is np.float32 else "torchvk_math64"]
    actual = evaluate("torchFrexpExponent(a)", x, result=np.int32, modules=modules)
    assert (actual == np.frexp(x)[1]).all()


def test_relu_keeps_nan() -> None:
    x = every_exponent(np.float32, 5000)
    actual = evaluate("torchRelu(a)", x, result=np.float32, modules=["torchvk_math"])
    assert np.array_equal(actual, torch.relu(torch.from_numpy(x)).numpy(), equal_nan=True)
