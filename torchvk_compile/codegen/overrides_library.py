"""Which Slang library module holds which mathematical function.

In: a function's name and the dtype of its operands. Out: a call, and the module it needs.
Forbidden: converting operands; knowing kernels.
"""

from __future__ import annotations

import torch

from torchvk_compile.errors import UnsupportedOperatorError

# Names as Inductor's; the Slang name is "torch" + CamelCase. Functions take one operand unless
# listed in BINARY. A module's double versions are in the module of the same name with "64" added.
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "torchvk_math": (
        *("sqrt", "rsqrt", "divide", "truncMod", "floorMod", "floorDiv", "hypot", "relu"),
        *("nextafter", "copysign", "frexpMantissa", "frexpExponent", "ldexp"),
    ),
    "torchvk_exponential": (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "pow"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    ),
    "torchvk_trigonometry": ("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    "torchvk_error_functions": ("erf", "erfc", "erfcx", "erfinv", "ndtr", "ndtri", "log_ndtr"),
}
_FUNCTIONS_64: dict[str, tuple[str, ...]] = {
    "torchvk_math": ("relu",),
}

UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "sqrt", "rsqrt"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("erf", "erfc", "erfcx", "erfinv", "ndtr", "ndtri", "log_ndtr"),
)
BINARY = ("atan2", "hypot", "nextafter", "copysign")


def _modules(functions: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: module for module, names in functions.items() for name in names}


_MODULE_OF = {torch.float32: _modules(_FUNCTIONS), torch.float64: _modules(_FUNCTIONS_64)}


def library_call(function: str, arguments: list[str], dtype: torch.dtype) -> tuple[str, str]:
    """A call of ``function`` on expressions of ``dtype`` (float32 or float64), and its module.

    Raises UnsupportedOperatorError where the library has no version for ``dtype``.
    """
    module = _MODULE_OF[dtype].get(function)
    if module is None:
        raise UnsupportedOperatorError(
            f"the function {function}", dtype=dtype, reason="the shader library lacks it"
        )
    name = "".join(part[0].upper() + part[1:] for part in function.split("_"))
    return f"torch{name}({', '.join(arguments)})", module
