"""Functions of double: errors in ulp against mpmath where numpy's long double is not enough."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from shader_functions import evaluate, every_exponent, pairs, ulp_errors, with_torch, worst
from test_library_float import assert_same_bits, name_of

EXPONENTIAL = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid")
HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
TRIGONOMETRIC = ("sin", "cos", "tan", "asin", "acos", "atan")
MODULES = {
    **dict.fromkeys(EXPONENTIAL + HYPERBOLIC, "torchvk_exponential64"),
    **dict.fromkeys(TRIGONOMETRIC, "torchvk_trigonometry64"),
    **dict.fromkeys(("erf", "erfc"), "torchvk_error_functions64"),
    **dict.fromkeys(("lgamma", "digamma"), "torchvk_gamma64"),
}
EXACTLY = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "lgamma": lambda x: mpmath.loggamma(x).real,
}


def exact_errors(function: str, actual: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Errors in ulp of a sample of finite results, with sixty digits."""
    exactly = EXACTLY.get(function) or getattr(mpmath, function)
    errors = np.zeros(len(x))
    with mpmath.workdps(60):
        for i, (argument, value) in enumerate(zip(x, actual)):
            if not np.isfinite(value) or value == 0:
                continue
            exact = exactly(mpmath.mpf(float(argument)))
            spacing = max(float(np.spacing(abs(float(exact)))), 5e-324)
            errors[i] = float(abs(mpmath.mpf(float(value)) - exact) / mpmath.mpf(spacing))
    return errors


@pytest.mark.parametrize("function", [name for name in MODULES if name != "lgamma"])
def test_unary_functions(function: str) -> None:
    x = every_exponent(np.float64, 400)
    if function == "digamma":
        x = np.abs(x)
    modules = [MODULES[function]]
    actual = evaluate(f"{name_of(function)}(a)", x, result=np.float64, modules=modules)
    errors = exact_errors(function, actual, x)
    assert errors.max() <= 4.0, worst(errors, actual, actual, x)
    # Limits and NaN as torch. Sinh and cosh are finite up to 710.47, where torch's overflow early.
    expected = with_torch(getattr(torch, function))(x)
    inner = np.abs(x) < 709 if function in ("sinh", "cosh") else np.full(len(x), True)
    special = (~np.isfinite(expected) | ~np.isfinite(actual)) & inner
    assert np.array_equal(actual[special], expected[special], equal_nan=True)


ROUNDING = {
    "roundEven": np.rint,
    "roundDown": np.floor,
    "roundUp": np.ceil,
    "roundToZero": np.trunc,
}


@pytest.mark.parametrize("function", ROUNDING)
def test_whole_numbers(function: str) -> None:
    x = every_exponent(np.float64, 400)
    halves = np.arange(-4.0, 4.25, 0.25)
    large = 2.0 ** np.arange(20, 54)
    steps = [large, large + 0.5, np.nextafter(large, 0), np.nextafter(large, np.inf)]
    x = np.concatenate([x, halves, *steps, *(-numbers for numbers in steps)])
    actual = evaluate(f"{function}(a)", x, result=np.float64, modules=["torchvk_float"])
    assert_same_bits(actual, ROUNDING[function](x), x)


def test_lgamma_is_relative_for_positive_and_absolute_for_negative_arguments() -> None:
    x = every_exponent(np.float64, 400)
    actual = evaluate("torchLgamma(a)", x, result=np.float64, modules=["torchvk_gamma64"])
    expected = with_torch(torch.lgamma)(x)
    assert np.allclose(actual, expected, rtol=2e-14, atol=2e-14, equal_nan=True)
    positive = np.abs(x)
    actual = evaluate("torchLgamma(a)", positive, result=np.float64, modules=["torchvk_gamma64"])
    errors = exact_errors("lgamma", actual, positive)
    assert errors.max() <= 8.0, worst(errors, actual, actual, positive)


def test_large_arguments_of_trigonometric_functions() -> None:
    generator = np.random.default_rng(0)
    k = generator.integers(1, 2**40, 300)
    x = np.concatenate([k * (np.pi / 2), 10.0 ** generator.uniform(6, 300, 300)])
    # The double closest to a multiple of pi / 2.
    x = np.append(x, 6381956970095103 * 2.0**797)
    for function in ("sin", "cos", "tan"):
        modules = [MODULES[function]]
        actual = evaluate(f"{name_of(function)}(a)", x, result=np.float64, modules=modules)
        with mpmath.workdps(400):
            exact = [getattr(mpmath, function)(mpmath.mpf(float(v))) for v in x]
            error = [
                float(abs(mpmath.mpf(float(a)) - e) / mpmath.mpf(float(np.spacing(abs(float(e))))))
                for a, e in zip(actual, exact)
            ]
        assert max(error) <= 4.0, f"{function} at {x[int(np.argmax(error))]!r}: {max(error)}"


@pytest.mark.parametrize("function", ["pow", "atan2", "hypot"])
def test_binary_functions(function: str) -> None:
    module = {"pow": "torchvk_exponential64", "atan2": "torchvk_trigonometry64"}
    a, b = pairs(np.float64, 5000)
    modules = [module.get(function, "torchvk_math64")]
    actual = evaluate(f"{name_of(function)}(a, b)", a, b, result=np.float64, modules=modules)
    exact = with_torch(getattr(torch, function))(a, b)
    errors = ulp_errors(actual, exact)
    assert errors.max() <= 3.0, worst(errors, actual, exact, a, b)


def test_error_function_inverses() -> None:
    generator = np.random.default_rng(4)
    p = np.concatenate(
        [generator.uniform(-1, 1, 2000), 1 - 10.0 ** generator.uniform(-15, 0, 2000)]
    )
    modules = ["torchvk_error_functions64"]
    actual = evaluate("torchErfinv(a)", p, result=np.float64, modules=modules)
    assert np.allclose(actual, with_torch(torch.erfinv)(p), rtol=1e-14, atol=0)
    p = np.concatenate([np.abs(p), 10.0 ** generator.uniform(-300, 0, 2000), [0.0, 1.0, -1.0, 2.0]])
    actual = evaluate("torchNdtri(a)", p, result=np.float64, modules=modules)
    expected = with_torch(torch.special.ndtri)(p)
    assert np.allclose(actual, expected, rtol=1e-13, atol=1e-15, equal_nan=True)
