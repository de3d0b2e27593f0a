"""Inductor's pointwise operations as Slang expressions with torch's semantics.

In: CSE variables (and Python numbers) of the kernel being generated. Out: Slang expressions.
Forbidden: loads, stores, reductions and index variables, which belong to the kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.dtype_propagation import promote_types
from torch._inductor.utils import get_bounds_index_expr
from torch._inductor.virtualized import OpsWrapper, V
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torchvk_compile.codegen import dtypes
from torchvk_compile.codegen.device_profile import fuses_multiply_add
from torchvk_compile.codegen.overrides_library import BINARY, UNARY, library_call
from torchvk_compile.codegen.printer import SlangExprPrinter, fits_int32
from torchvk_compile.errors import UnsupportedOperatorError

Operand: TypeAlias = CSEVariable | bool | int | float
COMMON_DIVISOR = "greatestCommonDivisor"
"""`ops.inline_asm_elementwise` under this name is the greatest common divisor of two integers."""

POISSON, BINOMIAL = "randomPoisson", "randomBinomial"
"""Under these names it draws from a distribution, given a seed, an offset and float32 parameters."""

_wide_printer = SlangExprPrinter(widen=True)
_LITERAL_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
_DOUBLE_ROUNDING = {
    "floor": "roundDown",
    "ceil": "roundUp",
    "trunc": "roundToZero",
    "rint": "roundEven",
}


class SlangOverrides(OpOverrides):
    """One small method per operation; each returns one Slang expression.

    The expression has the Slang compute type of the dtype that Inductor's dtype propagation gives
    the operation, so operands are converted explicitly and nothing depends on implicit promotion.
    Library modules are requested with ``V.kernel.require(module)``; ``V.kernel.profile`` is the
    DeviceProfile that decides which dtypes exist.
    """

    # -- values ------------------------------------------------------------------------------------

    @staticmethod
    def constant(value: bool | int | float, dtype: torch.dtype) -> str:
        dtypes.require_supported(dtype, V.kernel.profile, "a constant")
        return dtypes.literal(value, dtype)

    @staticmethod
    def to_dtype(
        x: Operand,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> str:
        dtypes.require_supported(dtype, V.kernel.profile, "a conversion")
        source = _dtype(x)
        return _convert(_text(x, source), source, dtype)

    @staticmethod
    def to_dtype_bitcast(x: Operand, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        dtypes.require_supported(dtype, V.kernel.profile, "a bit conversion")
        text, module = dtypes.bit_conversion(_text(x, src_dtype), src_dtype, dtype)
        if module is not None:
            V.kernel.require(module)
        return text

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        kernel = V.kernel
        prepared = kernel.prepare_indexing(expr)
        index_dtype = kernel.get_index_dtype_as_torch_dtype()
        narrow = dtype == torch.int64 and index_dtype == torch.int32
        if narrow and not fits_int32(prepared, _index_ranges(prepared)):
            # A value then, no index; torch 2.11 does not tell them apart.
            return SlangOverrides.value_expr(expr, dtype)
        text = kernel.index_to_str(prepared)
        target = index_dtype if dtype in (torch.int32, torch.int64) else dtype
        return _variable(_convert(text, _expr_dtype(expr, index_dtype), target), target, expr)

    @staticmethod
    def value_expr(expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        kernel = V.kernel
        prepared = kernel.prepare_indexing(expr)
        index_dtype = kernel.get_index_dtype_as_torch_dtype()
        if index_dtype == torch.int64 or fits_int32(prepared, _index_ranges(prepared)):
            text = kernel.index_to_str(prepared)
        else:
            index_dtype = torch.int64
            text = _wide_printer.doprint(kernel.rename_indexing(prepared))
        text = _convert(text, _expr_dtype(expr, index_dtype), dtype)
        return _variable(text, dtype, expr)

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], CSEVariable], other: Any) -> CSEVariable:
        with V.kernel.mask_loads(mask, other) as new_mask:
            result = body()
        dtype = result.dtype
        text = f"select({new_mask}, {result}, {dtypes.literal(other, dtype)})"
        return V.kernel.cse.generate(V.kernel.compute, text, dtype=dtype, shape=result.shape)

    @staticmethod
    def where(condition: Operand, then: Operand, otherwise: Operand) -> str:
        dtype = _promoted(then, otherwise)
        chosen = f"{_text(then, dtype)}, {_text(otherwise, dtype)}"
        return f"select({_text(condition, torch.bool)}, {chosen})"

    # -- arithmetic --------------------------------------------------------------------------------

    @staticmethod
    def add(a: Operand, b: Operand) -> str:
        dtype = _promoted(a, b)
        if dtype.is_floating_point:
            for zero, other in ((a, b), (b, a)):
                if _is_literal(zero, 0.0):
                    return _math("plusZero", _text(other, dtype), dtype=dtype)
        return _infix("|" if dtype == torch.bool else "+", a, b)

    @staticmethod
    def sub(a: Operand, b: Operand) -> str:
        dtype = _promoted(a, b)
        if dtype.is_floating_point:
            if _is_literal(a, 0.0):
                return _math("plusZero", f"-{_text(b, dtype)}", dtype=dtype)
            if _is_literal(b, -0.0):
                return _math("plusZero", _text(a, dtype), dtype=dtype)
            # Slang folds x - x to 0, which is wrong for infinities and NaN.
            return f"{_text(a, dtype)} + (-{_text(b, dtype)})"
        return _infix("^" if dtype == torch.bool else "-", a, b)

    @staticmethod
    def mul(a: Operand, b: Operand) -> str:
        return _infix("&" if _promoted(a, b) == torch.bool else "*", a, b)

    @staticmethod
    def fma(a: Operand, b: Operand, c: Operand) -> str:
        dtype = _promoted(a, b, c)
        if not dtype.is_floating_point:
            return f"{_text(a, dtype)} * {_text(b, dtype)} + {_text(c, dtype)}"
        return f"fma({_text(a, dtype)}, {_text(b, dtype)}, {_text(c, dtype)})"

    @staticmethod
    def mul_rn(a: Operand, b: Operand) -> str:
        return SlangOverrides.mul(a, b)

    @staticmethod
    def truediv(a: Operand, b: Operand) -> str:
        dtype = _floating(_promoted(a, b))
        dividend, divisor = _text(a, dtype), _text(b, dtype)
        if any(_is_literal(x, zero) for x in (a, b) for zero in (0.0, -0.0)):
            return _math("divideWithZero", dividend, divisor, dtype=dtype)
        if _rounds_correctly():
            return f"{dividend} / {divisor}"
        fused = dtype == torch.float32 and fuses_multiply_add(V.kernel.profile)
        return _math("divideFused" if fused else "divide", dividend, divisor, dtype=dtype)

    @staticmethod
    def div_rn(a: Operand, b: Operand) -> str:
        return SlangOverrides.truediv(a, b)

    @staticmethod
    def int_truediv(a: Operand, b: Operand) -> str:
        return SlangOverrides.truediv(a, b)

    @staticmethod
    def reciprocal(x: Operand) -> str:
        return SlangOverrides.truediv(1.0, x)

    @staticmethod
    def sqrt(x: Operand) -> str:
        if _rounds_correctly():
            return f"sqrt({_text(x, _floating(_dtype(x)))})"
        return _math_call("sqrt", x)

    @staticmethod
    def rsqrt(x: Operand) -> str:
        if _rounds_correctly():
            dtype = _floating(_dtype(x))
            return f"{dtypes.literal(1.0, dtype)} / sqrt({_text(x, dtype)})"
        return _math_call("rsqrt", x)

    @staticmethod
    def square(x: Operand) -> str:
        return SlangOverrides.mul(x, x)

    @staticmethod
    def neg(x: Operand) -> str:
        dtype = _dtype(x)
        if dtypes.is_unsigned(dtype):
            return f"{dtypes.literal(0, dtype)} - {_text(x, dtype)}"
        return f"-{_text(x, dtype)}"

    @staticmethod
    def abs(x: Operand) -> str:
        dtype = _dtype(x)
        if dtype == torch.bool or dtypes.is_unsigned(dtype):
            return _text(x, dtype)
        text = _text(x, dtype)
        if dtype.is_floating_point:
            return f"abs({text})"
        return f"select({text} < {dtypes.literal(0, dtype)}, -{text}, {text})"

    @staticmethod
    def sign(x: Operand) -> str:
        dtype = _dtype(x)
        if dtype == torch.bool:
            return _text(x, dtype)
        text, zero, one = _text(x, dtype), dtypes.literal(0, dtype), dtypes.literal(1, dtype)
        negative = dtypes.literal(0 if dtypes.is_unsigned(dtype) else -1, dtype)
        return f"select({text} > {zero}, {one}, select({text} < {zero}, {negative}, {zero}))"

    @staticmethod
    def relu(x: Operand) -> str:
        dtype = _dtype(x)
        if dtype.is_floating_point:
            return _math("relu", _text(x, dtype), dtype=dtype)
        return SlangOverrides.maximum(x, 0)

    @staticmethod
    def maximum(a: Operand, b: Operand) -> str:
        return _extremum("max", "|", a, b)

    @staticmethod
    def minimum(a: Operand, b: Operand) -> str:
        return _extremum("min", "&", a, b)

    @staticmethod
    def floordiv(a: Operand, b: Operand) -> str:
        return _division("floorDiv", a, b)

    @staticmethod
    def truncdiv(a: Operand, b: Operand) -> str:
        if _promoted(a, b).is_floating_point:
            return _rounding("trunc", SlangOverrides.truediv(a, b), _promoted(a, b))
        return _division("truncDiv", a, b)

    @staticmethod
    def mod(a: Operand, b: Operand) -> str:
        return _division("truncMod", a, b)

    @staticmethod
    def fmod(a: Operand, b: Operand) -> str:
        return _division("truncMod", a, b)

    @staticmethod
    def remainder(a: Operand, b: Operand) -> str:
        return _division("floorMod", a, b)

    @staticmethod
    def pow(a: Operand, b: Operand) -> CSEVariable | str:
        dtype = _promoted(a, b)
        if dtype.is_floating_point:
            return _math("pow", _text(a, dtype), _text(b, dtype), dtype=dtype)
        # A variable of its own: dtype propagation takes scalars' integer powers for float64.
        return _variable(_division("power", a, b), dtype)

    # -- bits --------------------------------------------------------------------------------------

    @staticmethod
    def bitwise_and(a: Operand, b: Operand) -> str:
        return _infix("&", a, b)

    @staticmethod
    def bitwise_or(a: Operand, b: Operand) -> str:
        return _infix("|", a, b)

    @staticmethod
    def bitwise_xor(a: Operand, b: Operand) -> str:
        return _infix("^", a, b)

    @staticmethod
    def bitwise_not(x: Operand) -> str:
        dtype = _dtype(x)
        return f"{'!' if dtype == torch.bool else '~'}{_text(x, dtype)}"

    @staticmethod
    def bitwise_left_shift(a: Operand, b: Operand) -> str:
        return _shift("shiftLeft", a, b)

    @staticmethod
    def bitwise_right_shift(a: Operand, b: Operand) -> str:
        return _shift("shiftRight", a, b)

    lshift = bitwise_left_shift
    rshift = bitwise_right_shift
    and_ = bitwise_and
    or_ = bitwise_or
    xor = bitwise_xor

    # -- comparison and logic ----------------------------------------------------------------------

    @staticmethod
    def eq(a: Operand, b: Operand) -> str:
        return f"!{SlangOverrides.isnan(a)}" if _same_float(a, b) else _infix("==", a, b)

    @staticmethod
    def ne(a: Operand, b: Operand) -> str:
        return SlangOverrides.isnan(a) if _same_float(a, b) else _infix("!=", a, b)

    @staticmethod
    def lt(a: Operand, b: Operand) -> str:
        return _ordering("<", a, b)

    @staticmethod
    def gt(a: Operand, b: Operand) -> str:
        return _ordering(">", a, b)

    @staticmethod
    def le(a: Operand, b: Operand) -> str:
        return _ordering("<=", a, b)

    @staticmethod
    def ge(a: Operand, b: Operand) -> str:
        return _ordering(">=", a, b)

    @staticmethod
    def logical_and(a: Operand, b: Operand) -> str:
        return f"{_text(a, torch.bool)} & {_text(b, torch.bool)}"

    @staticmethod
    def logical_or(a: Operand, b: Operand) -> str:
        return f"{_text(a, torch.bool)} | {_text(b, torch.bool)}"

    @staticmethod
    def logical_xor(a: Operand, b: Operand) -> str:
        return f"{_text(a, torch.bool)} ^ {_text(b, torch.bool)}"

    @staticmethod
    def logical_not(x: Operand) -> str:
        return f"!{_text(x, torch.bool)}"

    @staticmethod
    def isnan(x: Operand) -> str:
        return _float_test("isNan", x)

    @staticmethod
    def isinf(x: Operand) -> str:
        return _float_test("isInf", x)

    @staticmethod
    def signbit(x: Operand) -> str:
        dtype = _dtype(x)
        if dtype == torch.bool or dtypes.is_unsigned(dtype):
            return "false"
        if dtype.is_floating_point:
            return _float_test("signBit", x)
        return f"{_text(x, dtype)} < {dtypes.literal(0, dtype)}"

    # -- rounding ----------------------------------------------------------------------------------

    @staticmethod
    def floor(x: Operand) -> str:
        return _rounded("floor", x)

    @staticmethod
    def ceil(x: Operand) -> str:
        return _rounded("ceil", x)

    @staticmethod
    def trunc(x: Operand) -> str:
        return _rounded("trunc", x)

    @staticmethod
    def round(x: Operand) -> str:
        return _rounded("rint", x)

    # -- parts of a float --------------------------------------------------------------------------

    @staticmethod
    def frexp(x: Operand) -> tuple[CSEVariable, CSEVariable]:
        dtype = _floating(_dtype(x))
        text = _text(x, dtype)
        mantissa = _variable(_math("frexpMantissa", text, dtype=dtype), dtype)
        return mantissa, _variable(_math("frexpExponent", text, dtype=dtype), torch.int32)

    @staticmethod
    def ldexp(x: Operand, exponent: Operand) -> str:
        dtype = _floating(_dtype(x))
        return _math("ldexp", _text(x, dtype), _text(exponent, torch.int32), dtype=dtype)

    # -- random numbers ----------------------------------------------------------------------------

    @staticmethod
    def rand(seed: Operand, offset: Operand) -> str:
        return _random("randomUniform", seed, offset)

    @staticmethod
    def randn(seed: Operand, offset: Operand) -> str:
        return _random("randomNormal", seed, offset)

    @staticmethod
    def randint64(seed: Operand, offset: Operand, low: Operand, high: Operand) -> str:
        return _random("randomInteger", seed, offset, low, high)

    @staticmethod
    def rand_eager(*args: Any) -> str:
        raise UnsupportedOperatorError("rand_eager", reason="it reproduces CUDA's eager generator")

    # -- operations of other backends --------------------------------------------------------------

    @staticmethod
    def inline_asm_elementwise(*inputs: Any, asm: str, **options: Any) -> str:
        # The one operation that torch leaves a backend to name; a user's own text is for another machine.
        if asm == COMMON_DIVISOR:
            return _division(COMMON_DIVISOR, *inputs)
        if asm in (POISSON, BINOMIAL):
            return _variate(asm, *inputs)
        raise UnsupportedOperatorError("inline_asm_elementwise", reason="it holds CUDA assembly")


def _dtype(x: Operand) -> torch.dtype:
    """The compute dtype of an operand; Python floats count as float32, ints as int64."""
    if isinstance(x, CSEVariable):
        if x.dtype is None:
            raise AssertionError(f"{x} has no dtype")
        return dtypes.compute_dtype(x.dtype)
    if isinstance(x, bool):
        return torch.bool
    return torch.int64 if isinstance(x, int) else torch.float32


def _promoted(*operands: Operand) -> torch.dtype:
    return dtypes.compute_dtype(promote_types([OpsWrapper._unwrap(x) for x in operands]))


def _floating(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


def _convert(text: str, source: torch.dtype, target: torch.dtype) -> str:
    converted, module = dtypes.conversion(text, source, target)
    if module is not None:
        V.kernel.require(module)
    return converted


def _text(x: Operand, dtype: torch.dtype) -> str:
    """``x`` as an expression of the compute type of ``dtype``."""
    dtype = dtypes.compute_dtype(dtype)
    if isinstance(x, (bool, int, float)):
        text = dtypes.literal(x, dtype)
        return f"({text})" if text.startswith("-") else text
    return _convert(str(x), _dtype(x), dtype)


def _variable(text: str, dtype: torch.dtype, expr: sympy.Expr | None = None) -> CSEVariable:
    """A CSE variable whose dtype and (for an index expression) bounds are known here."""
    bounds = ValueRanges.unknown() if expr is None else get_bounds_index_expr(expr)
    dtype = dtypes.compute_dtype(dtype)
    return V.kernel.cse.generate(V.kernel.compute, text, bounds=bounds, dtype=dtype)


def _expr_dtype(expr: sympy.Expr, index_dtype: torch.dtype) -> torch.dtype:
    if expr.is_Boolean or expr.is_Relational:
        return torch.bool
    return index_dtype if expr.is_integer else torch.float32


def _index_ranges(expr: sympy.Expr) -> dict[sympy.Symbol, ValueRanges[Any]]:
    """Bounds of the symbols of a prepared index expression: loop indices and sizes."""
    ranges = {}
    known_sizes = V.graph.sizevars.shape_env.var_to_range
    for symbol in expr.free_symbols:
        entry = V.kernel.range_tree_nodes.get(symbol)
        if entry is not None:
            ranges[symbol] = ValueRanges(0, bound_sympy(entry.length - 1, known_sizes).upper)
        elif symbol in known_sizes:
            ranges[symbol] = known_sizes[symbol]
    return ranges


def _rounds_correctly() -> bool:
    """CPU drivers round quotients and roots correctly; others may be 2.5 ulp off."""
    return V.kernel.profile.device_type == "cpu"


def _is_literal(x: Operand, value: float) -> bool:
    """Whether an operand is the variable of a whole constant, in any dtype; 0.0 and -0.0 are not the same."""
    if not isinstance(x, CSEVariable):
        return x == value and math.copysign(1.0, x) == math.copysign(1.0, value)
    texts = {dtypes.literal(value, dtype) for dtype in _LITERAL_DTYPES}
    return any(V.kernel.cse.try_get(text) == x for text in texts)


def _infix(operator: str, a: Operand, b: Operand) -> str:
    dtype = _promoted(a, b)
    return f"{_text(a, dtype)} {operator} {_text(b, dtype)}"


def _ordering(operator: str, a: Operand, b: Operand) -> str:
    dtype = _promoted(a, b)
    if dtype == torch.bool:
        dtype = torch.int32
    return f"{_text(a, dtype)} {operator} {_text(b, dtype)}"


def _same_float(a: Operand, b: Operand) -> bool:
    return isinstance(a, CSEVariable) and a == b and _dtype(a).is_floating_point


def _extremum(function: str, of_bools: str, a: Operand, b: Operand) -> str:
    dtype = _promoted(a, b)
    if dtype == torch.bool:
        return _infix(of_bools, a, b)
    if dtype.is_floating_point:
        V.kernel.require("torchvk_math")
        return f"{function}imum({_text(a, dtype)}, {_text(b, dtype)})"
    return f"{function}({_text(a, dtype)}, {_text(b, dtype)})"


def _widened(dtype: torch.dtype) -> torch.dtype:
    """The 32-bit integer dtype that the integer library computes narrow integers in."""
    if dtype == torch.bool or (dtypes.is_integer(dtype) and dtypes.integer_bits(dtype) < 32):
        return torch.uint32 if dtypes.is_unsigned(dtype) else torch.int32
    return dtype


def _division(function: str, a: Operand, b: Operand) -> str:
    """Division, remainder or power: floats in the math library, integers in the integer library."""
    dtype = _promoted(a, b)
    if dtype.is_floating_point:
        return _math(function, _text(a, dtype), _text(b, dtype), dtype=dtype)
    V.kernel.require("torchvk_integer")
    wide = _widened(dtype)
    return _convert(f"{function}({_text(a, wide)}, {_text(b, wide)})", wide, dtype)


def _shift(function: str, a: Operand, b: Operand) -> str:
    dtype = _dtype(a)
    V.kernel.require("torchvk_integer")
    wide = _widened(dtype)
    bits = dtypes.integer_bits(dtype) if dtypes.is_integer(dtype) else 1
    return _convert(f"{function}({_text(a, wide)}, {_text(b, wide)}, {bits})", wide, dtype)


def _float_test(function: str, x: Operand) -> str:
    dtype = _dtype(x)
    if not dtype.is_floating_point:
        return "false"
    V.kernel.require("torchvk_float")
    return f"{function}({_text(x, dtype)})"


def _rounded(function: str, x: Operand) -> str:
    dtype = _dtype(x)
    return _rounding(function, _text(x, dtype), dtype)


def _rounding(function: str, text: str, dtype: torch.dtype) -> str:
    """A number rounded to a whole one by Slang's `function`, doubles by the library's."""
    if not dtype.is_floating_point:
        return text
    if dtype == torch.float64:
        V.kernel.require("torchvk_float")
        function = _DOUBLE_ROUNDING[function]
    return f"{function}({text})"


def _math(function: str, *arguments: str, dtype: torch.dtype) -> str:
    call, module = library_call(function, list(arguments), dtype)
    V.kernel.require(module)
    return call


def _math_call(function: str, *operands: Operand) -> str:
    dtype = _floating(_promoted(*operands))
    return _math(function, *(_text(x, dtype) for x in operands), dtype=dtype)


def _random(function: str, seed: Operand, offset: Operand, *bounds: Operand) -> str:
    V.kernel.require("torchvk_random")
    arguments = [_text(x, torch.int64) for x in (seed, offset, *bounds)]
    return f"{function}({', '.join(arguments)})"


def _variate(function: str, seed: Operand, offset: Operand, *parameters: Operand) -> str:
    V.kernel.require("torchvk_variates")
    counters = [_text(x, torch.int64) for x in (seed, offset)]
    own = [_text(x, torch.float32) for x in parameters]
    return f"{function}({', '.join([*counters, *own])})"


def _define(functions: dict[str, str]) -> None:
    for operation, function in functions.items():
        override = functools.partial(_math_call, function)
        override.__name__ = operation  # type: ignore[attr-defined]
        setattr(SlangOverrides, operation, staticmethod(override))


_define(UNARY)
_define(BINARY)
