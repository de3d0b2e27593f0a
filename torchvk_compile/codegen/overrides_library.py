"""Which Slang library module holds which mathematical function.

In: a function's name and the dtype of its operands. Out: a call, and the module it needs.
Forbidden: converting operands; knowing kernels.
"""

from __future__ import annotations

import torch

# Names as Inductor's; the Slang name is "torch" + CamelCase. The versions for double of a module's
# functions are in the module of the same name with "64" added.
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "torchvk_math": (
        *("sqrt", "rsqrt", "divide", "divideFused", "divideWithZero", "hypot", "relu"),
        "plusZero",
        *("truncMod", "floorMod", "floorDiv"),
        *("nextafter", "copysign", "frexpMantissa", "frexpExponent", "ldexp"),
    ),
    "torchvk_exponential": (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "pow"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    ),
    "torchvk_trigonometry": ("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    "torchvk_error_functions": ("erf", "erfc", "erfcx", "erfinv", "ndtr", "ndtri", "log_ndtr"),
    "torchvk_gamma": ("lgamma", "digamma", "polygamma", "zeta", "igamma", "igammac"),
    "torchvk_bessel": (
        *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai"),
        *("i0", "i0e", "i1", "i1e", "modified_bessel_i0", "modified_bessel_i1"),
        *("modified_bessel_k0", "modified_bessel_k1"),
        *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
    ),
    "torchvk_orthogonal": (
        *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
        *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
        *("hermite_polynomial_h", "hermite_polynomial_he"),
        *("laguerre_polynomial_l", "legendre_polynomial_p"),
    ),
}
_MODULE_OF = {name: module for module, names in _FUNCTIONS.items() for name in names}

_BINARY_NAMES = (
    *("atan2", "hypot", "nextafter", "copysign", "zeta", "polygamma", "igamma", "igammac"),
    *_FUNCTIONS["torchvk_orthogonal"],
)
# The other functions have operations of their own in SlangOverrides.
_PRIVATE = (
    *("sqrt", "rsqrt", "divide", "divideFused", "divideWithZero"),
    *("truncMod", "floorMod", "floorDiv"),
    *("relu", "plusZero", "pow", "ldexp", "frexpMantissa", "frexpExponent"),
)
BINARY: dict[str, str] = {
    **{name: name for name in _BINARY_NAMES},
    "gammainc": "igamma",
    "gammaincc": "igammac",
}
UNARY: dict[str, str] = {
    name: name
    for names in _FUNCTIONS.values()
    for name in names
    if name not in (*_BINARY_NAMES, *_PRIVATE)
}


def library_call(function: str, arguments: list[str], dtype: torch.dtype) -> tuple[str, str]:
    """A call of ``function`` on expressions of ``dtype`` (float32 or float64), and its module."""
    module = _MODULE_OF[function] + ("64" if dtype == torch.float64 else "")
    name = "".join(part[0].upper() + part[1:] for part in function.split("_"))
    return f"torch{name}({', '.join(arguments)})", module
