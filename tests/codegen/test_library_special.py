"""Special functions of float against torch in float64; absolute errors where they oscillate."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from shader_functions import as_on_device, evaluate, with_torch
from test_library_float import name_of

ERROR_FUNCTIONS = "torchvk_error_functions"
GAMMA = "torchvk_gamma"
BESSEL = "torchvk_bessel"
ORTHOGONAL = "torchvk_orthogonal"


def samples(low: float, high: float, count: int = 4000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, count).astype(np.float32)


def magnitudes(low: float, high: float, count: int = 4000, seed: int = 0) -> np.ndarray:
    """Positive numbers spread evenly over their exponents."""
    return (10.0 ** np.random.default_rng(seed).uniform(low, high, count)).astype(np.float32)


LIMITS = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
REAL = np.concatenate([LIMITS, samples(-30, 30), samples(-3, 3), magnitudes(-30, 4)])
POSITIVE = np.concatenate([LIMITS, samples(0, 30), samples(0, 3), magnitudes(-30, 4)])
UNIT = np.concatenate([LIMITS, samples(-1, 1), 1 - magnitudes(-7, -1), magnitudes(-30, -1)])

special = torch.special
UNARY: list[tuple[str, str, Callable[..., torch.Tensor], np.ndarray, float]] = [
    ("erfinv", ERROR_FUNCTIONS, torch.erfinv, UNIT, 0.0),
    ("erfcx", ERROR_FUNCTIONS, special.erfcx, POSITIVE, 0.0),
    ("ndtri", ERROR_FUNCTIONS, special.ndtri, UNIT, 1e-7),
    ("ndtr", ERROR_FUNCTIONS, special.ndtr, REAL, 1e-12),
    ("log_ndtr", ERROR_FUNCTIONS, special.log_ndtr, REAL, 1e-12),
    ("lgamma", GAMMA, torch.lgamma, REAL, 2e-6),
    ("lgamma", GAMMA, torch.lgamma, POSITIVE, 0.0),
    ("digamma", GAMMA, torch.digamma, REAL, 3e-6),
    ("i0", BESSEL, special.i0, REAL, 0.0),
    ("i0e", BESSEL, special.i0e, REAL, 0.0),
    ("i1", BESSEL, special.i1, REAL, 0.0),
    ("i1e", BESSEL, special.i1e, REAL, 0.0),
    ("modified_bessel_k0", BESSEL, special.modified_bessel_k0, POSITIVE, 0.0),
    ("modified_bessel_k1", BESSEL, special.modified_bessel_k1, POSITIVE, 0.0),
    ("scaled_modified_bessel_k0", BESSEL, special.scaled_modified_bessel_k0, POSITIVE, 0.0),
    ("scaled_modified_bessel_k1", BESSEL, special.scaled_modified_bessel_k1, POSITIVE, 0.0),
    ("bessel_j0", BESSEL, special.bessel_j0, samples(-300, 300), 2e-6),
    ("bessel_j1", BESSEL, special.bessel_j1, samples(-300, 300), 2e-6),
    ("bessel_y0", BESSEL, special.bessel_y0, samples(0.01, 300), 3e-6),
    ("bessel_y1", BESSEL, special.bessel_y1, samples(0.01, 300), 3e-6),
    ("spherical_bessel_j0", BESSEL, special.spherical_bessel_j0, REAL, 1e-7),
    ("airy_ai", BESSEL, special.airy_ai, samples(-15, 15), 3e-6),
]


@pytest.mark.parametrize(("function", "module", "reference", "x", "absolute"), UNARY)
def test_unary_functions(
    function: str,
    module: str,
    reference: Callable[..., torch.Tensor],
    x: np.ndarray,
    absolute: float,
) -> None:
    actual = evaluate(f"{name_of(function)}(a)", x, result=np.float32, modules=[module])
    with np.errstate(all="ignore"):
        expected = as_on_device(with_torch(reference)(x.astype(np.float64)).astype(np.float32))
    actual = as_on_device(actual)
    np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=absolute, equal_nan=True)


BESSEL_64 = [
    *("i0", "i0e", "i1", "i1e", "spherical_bessel_j0"),
    *("modified_bessel_k0", "modified_bessel_k1"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
]


@pytest.mark.parametrize("function", BESSEL_64)
def test_bessel_functions_of_double(function: str) -> None:
    x = (POSITIVE if "_k" in function or "_y" in function else REAL).astype(np.float64)
    x = x[~(np.abs(x) > 300)]
    actual = evaluate(f"{name_of(function)}(a)", x, result=np.float64, modules=[BESSEL + "64"])
    expected = with_torch(getattr(special, function))(x)
    np.testing.assert_allclose(actual, expected, rtol=3e-14, equal_nan=True)


@pytest.mark.parametrize("function", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_oscillating_bessel_functions_of_double(function: str) -> None:
    # torch's own have six digits beyond a few periods.
    x = np.concatenate([samples(0.01, 12, 150), samples(0.01, 3000, 150)]).astype(np.float64)
    actual = evaluate(f"{name_of(function)}(a)", x, result=np.float64, modules=[BESSEL + "64"])
    kind, order = function[-2:]
    exactly = mpmath.besselj if kind == "j" else mpmath.bessely
    expected = np.array([float(exactly(int(order), mpmath.mpf(v))) for v in x])
    np.testing.assert_allclose(actual, expected, rtol=3e-14, atol=3e-14)


def test_airy_function_of_double() -> None:
    x = samples(-20, 8, 400).astype(np.float64)
    actual = evaluate("torchAiryAi(a)", x, result=np.float64, modules=[BESSEL + "64"])
    expected = np.array([float(mpmath.airyai(mpmath.mpf(v))) for v in x])
    np.testing.assert_allclose(actual, expected, rtol=3e-14, atol=3e-14)


def test_poles_of_gamma_functions() -> None:
    x = np.concatenate([-np.arange(0, 20), [-np.inf]]).astype(np.float32)
    for function, reference in (("lgamma", torch.lgamma), ("digamma", torch.digamma)):
        actual = evaluate(f"{name_of(function)}(a)", x, result=np.float32, modules=[GAMMA])
        np.testing.assert_array_equal(actual, with_torch(reference)(x))


FLOAT, DOUBLE = np.float32, np.float64
# Relative tolerances where the functions cancel, by dtype.
LOOSE = {FLOAT: 2e-4, DOUBLE: 1e-11}


def versions(module: str, dtype: type) -> list[str]:
    return [module if dtype is FLOAT else f"{module}64"]


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("order", [0, 1, 2, 3, 5])
def test_polygamma(order: int, dtype: type) -> None:
    x = np.concatenate([samples(0.05, 40), samples(-9, 0)]).astype(dtype)
    suffix = "f" if dtype is FLOAT else "lf"
    expression = f"torchPolygamma({order}.0{suffix}, a)"
    actual = evaluate(expression, x, result=dtype, modules=versions(GAMMA, dtype))
    expected = with_torch(lambda v: torch.polygamma(order, v))(x.astype(np.float64))
    # torch's own trigamma of double has nine digits.
    tolerance = 1e-8 if order == 1 and dtype is DOUBLE else LOOSE[dtype]
    np.testing.assert_allclose(actual, expected.astype(dtype), rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
def test_zeta(dtype: type) -> None:
    s, q = samples(1.01, 20).astype(dtype), samples(0.05, 50, seed=1).astype(dtype)
    actual = evaluate("torchZeta(a, b)", s, q, result=dtype, modules=versions(GAMMA, dtype))
    expected = with_torch(special.zeta)(s.astype(np.float64), q.astype(np.float64))
    tolerance = 2e-6 if dtype is FLOAT else 1e-14
    np.testing.assert_allclose(actual, expected.astype(dtype), rtol=tolerance)


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("function", ["igamma", "igammac"])
def test_incomplete_gamma(function: str, dtype: type) -> None:
    a = np.concatenate([samples(0, 5), samples(0, 200), magnitudes(-5, 4)])
    x = np.concatenate([samples(0, 5, seed=1), samples(0, 200, seed=1), magnitudes(-5, 4, seed=1)])
    limits = np.array([0, 1, 2, np.inf, np.nan, 1, 0, 5], np.float32)
    a, x = np.append(a, limits).astype(dtype), np.append(x, limits[::-1]).astype(dtype)
    expression = f"{name_of(function)}(a, b)"
    actual = evaluate(expression, a, x, result=dtype, modules=versions(GAMMA, dtype))
    expected = with_torch(getattr(torch, function))(a.astype(np.float64), x.astype(np.float64))
    # torch's own values for double have nine digits where a and x are large and close.
    relative, absolute = (1e-4, 1e-6) if dtype is FLOAT else (1e-8, 1e-14)
    np.testing.assert_allclose(
        actual, expected.astype(dtype), rtol=relative, atol=absolute, equal_nan=True
    )


POLYNOMIALS = [
    *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p"),
]


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("function", POLYNOMIALS)
def test_orthogonal_polynomials(function: str, dtype: type) -> None:
    edges = np.array([1, -1, 0, 0.5] * 10, np.float32)
    x = np.concatenate([samples(-1, 1, 2000), samples(-1.5, 1.5, 2000), edges]).astype(dtype)
    degree = np.random.default_rng(2).integers(-2, 12, len(x)).astype(dtype)
    expression = f"{name_of(function)}(a, b)"
    modules = versions(ORTHOGONAL, dtype)
    actual = evaluate(expression, x, degree, result=dtype, modules=modules)
    reference = getattr(special, function)
    expected = with_torch(reference)(x.astype(np.float64), degree.astype(np.float64))
    precision = 1e-5 if dtype is FLOAT else 1e-13
    scale = precision * (1 + np.abs(expected).max(initial=0) * 1e-2)
    np.testing.assert_allclose(actual, expected.astype(dtype), rtol=10 * precision, atol=scale)
