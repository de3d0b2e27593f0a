"""Prints index expressions (sympy) as Slang.

In: sympy expressions over index variables and sizes. Out: Slang text of type int, int64_t or float.
Forbidden: simplifying or changing an expression; reading buffers or loop structure.
"""

from __future__ import annotations

import re
from typing import Any

import sympy
import torch
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import PowByNatural
from torch.utils._sympy.printers import ExprPrinter
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torchvk_compile.codegen.dtypes import literal
from torchvk_compile.codegen.overrides_library import library_call

INTEGER_MODULE = "torchvk_integer"
_INT32_MAX = 2**31 - 1


class SlangExprPrinter(ExprPrinter):
    """sympy → Slang with Python's integer semantics.

    Division floors and remainders take the divisor's sign. Where the operands are known not to be
    negative the cheaper unsigned forms are printed; powers of two become shifts and masks, which
    floor for negative numbers too. Library functions are requested through ``V.kernel.require``.

    Args:
        widen: print every symbol and number as int64_t: for kernels that index with 64 bits, and
            for values that may leave 32 bits.
    """

    def __init__(self, *, widen: bool = False) -> None:
        super().__init__()
        self._widen = widen

    # -- leaves ----------------------------------------------------------------------------------

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        if self._widen and expr.is_integer:
            return f"int64_t({expr.name})"
        return expr.name

    def _print_Integer(self, expr: sympy.Integer) -> str:
        value = int(expr)
        wide = self._widen or not -_INT32_MAX <= value <= _INT32_MAX
        text = literal(value, torch.int64 if wide else torch.int32)
        return f"({text})" if value < 0 else text

    _print_Zero = _print_Integer
    _print_One = _print_Integer
    _print_NegativeOne = _print_Integer

    def _print_Float(self, expr: sympy.Float) -> str:
        text = literal(float(expr), torch.float32)
        return f"({text})" if text.startswith("-") else text

    def _print_Rational(self, expr: sympy.Rational) -> str:
        return literal(expr.p / expr.q, torch.float32)

    def _print_Infinity(self, expr: sympy.Expr) -> str:
        return literal(float("inf"), torch.float32)

    def _print_NegativeInfinity(self, expr: sympy.Expr) -> str:
        return literal(float("-inf"), torch.float32)

    def _print_NaN(self, expr: sympy.Expr) -> str:
        return literal(float("nan"), torch.float32)

    def _print_BooleanTrue(self, expr: sympy.Expr) -> str:
        return "true"

    def _print_BooleanFalse(self, expr: sympy.Expr) -> str:
        return "false"

    # -- sums and products -------------------------------------------------------------------------

    def _print_Add(self, expr: sympy.Add, order: str | None = None) -> str:
        text = ""
        for term in expr.args:
            negative = term.could_extract_minus_sign()
            factor = self._factor(-term if negative else term)
            if text:
                text += f" - {factor}" if negative else f" + {factor}"
            else:
                text = f"-{factor}" if negative else factor
        return text

    def _print_Mul(self, expr: sympy.Mul) -> str:
        if expr.could_extract_minus_sign():
            return f"(-{self._text(-expr)})"
        return " * ".join(map(self._text, expr.args))

    # -- integer division --------------------------------------------------------------------------

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        numerator, divisor = expr.args
        return self._quotient(self._text(numerator), divisor, _non_negative(numerator, divisor))

    def _print_CleanDiv(self, expr: sympy.Expr) -> str:
        numerator, divisor = expr.args
        if _non_negative(numerator, divisor):
            return self._quotient(self._text(numerator), divisor, True)
        return f"({self._text(numerator)} / {self._text(divisor)})"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        numerator, divisor, modulus = expr.args
        plain = _non_negative(numerator, divisor, modulus)
        quotient = self._text(numerator)
        if divisor != 1:
            quotient = self._quotient(quotient, divisor, plain)
        return self._rest(quotient, modulus, plain)

    def _print_Mod(self, expr: sympy.Expr) -> str:
        numerator, modulus = expr.args
        return self._rest(self._text(numerator), modulus, _non_negative(numerator, modulus))

    _print_PythonMod = _print_Mod

    def _quotient(self, numerator: str, divisor: sympy.Expr, plain: bool) -> str:
        shift = _power_of_two(divisor)
        if shift is not None:
            return f"({numerator} >> {shift})"
        return self._call("indexDiv" if plain else "floorDiv", numerator, self._print(divisor))

    def _rest(self, numerator: str, modulus: sympy.Expr, plain: bool) -> str:
        if _power_of_two(modulus) is not None:
            return f"({numerator} & {self._print(modulus - 1)})"
        return self._call("indexMod" if plain else "floorMod", numerator, self._print(modulus))

    def _call(self, function: str, *arguments: str) -> str:
        _require(INTEGER_MODULE)
        return f"{function}({', '.join(arguments)})"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        base, exponent = (self._print(argument) for argument in expr.args)
        return self._call("power", base, exponent)

    def _print_BitwiseFn_bitwise_and(self, expr: sympy.Expr) -> str:
        return self._infix(expr, "&")

    def _print_BitwiseFn_bitwise_or(self, expr: sympy.Expr) -> str:
        return self._infix(expr, "|")

    def _print_BitwiseFn_bitwise_xor(self, expr: sympy.Expr) -> str:
        return self._infix(expr, "^")

    # -- choice and order --------------------------------------------------------------------------

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._folded(expr, "min")

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._folded(expr, "max")

    def _print_Abs(self, expr: sympy.Expr) -> str:
        return f"abs({self._print(expr.args[0])})"

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, then, otherwise = (self._print(argument) for argument in expr.args)
        return f"select({condition}, {then}, {otherwise})"

    def _print_Piecewise(self, expr: sympy.Expr) -> str:
        *cases, (last, _) = expr.args
        text = self._print(last)
        for value, condition in reversed(cases):
            text = f"select({self._print(condition)}, {self._print(value)}, {text})"
        return text

    def _print_Relational(self, expr: sympy.Expr) -> str:
        return f"({self._text(expr.lhs)} {expr.rel_op} {self._text(expr.rhs)})"

    def _print_And(self, expr: sympy.Expr) -> str:
        return self._infix(expr, "&")

    def _print_Or(self, expr: sympy.Expr) -> str:
        return self._infix(expr, "|")

    def _print_Not(self, expr: sympy.Expr) -> str:
        return f"(!{self._text(expr.args[0])})"

    # -- floating point ----------------------------------------------------------------------------

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return f"float({self._print(expr.args[0])})"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        numerator, divisor = (self._print(argument) for argument in expr.args)
        return f"(float({numerator}) / float({divisor}))"

    def _print_FloatTrueDiv(self, expr: sympy.Expr) -> str:
        return self._print_IntTrueDiv(expr)

    def _print_FloatPow(self, expr: sympy.Expr) -> str:
        return self._library("pow", expr)

    def _library(self, function: str, expr: sympy.Expr) -> str:
        arguments = [f"float({self._print(argument)})" for argument in expr.args]
        text, module = library_call(function, arguments, torch.float32)
        _require(module)
        return text

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return self._to_integer(self._print(expr.args[0]))

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return self._to_integer(f"floor({self._print(expr.args[0])})")

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return self._to_integer(f"ceil({self._print(expr.args[0])})")

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return self._to_integer(f"rint({self._print(expr.args[0])})")

    _print_floor = _print_FloorToInt
    _print_ceiling = _print_CeilToInt

    def _to_integer(self, value: str) -> str:
        return f"{'int64_t' if self._widen else 'int'}({value})"

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:
        return f"trunc({self._print(expr.args[0])})"

    def _print_RoundDecimal(self, expr: sympy.Expr) -> str:
        number, digits = expr.args
        scale, back = (literal(10.0 ** int(n), torch.float32) for n in (digits, -digits))
        return f"(rint({self._text(number)} * {scale}) * {back})"

    def _print_Function(self, expr: sympy.Expr) -> str:
        name = type(expr).__name__
        opaque = name.removeprefix("OpaqueUnaryFn_")
        if opaque != name:
            return self._library(opaque, expr)
        raise NotImplementedError(
            f"an index expression uses {name}, which has no Slang form: {expr}"
        )

    def emptyPrinter(self, expr: Any) -> str:
        raise NotImplementedError(f"{type(expr).__name__} has no Slang form: {expr}")

    # -- text --------------------------------------------------------------------------------------

    def _text(self, expr: sympy.Expr) -> str:
        """``expr`` in parentheses unless it is a name, a number or already a call."""
        text = self._print(expr)
        return text if _is_atom(text) else f"({text})"

    def _factor(self, expr: sympy.Expr) -> str:
        return self._print(expr) if expr.is_Mul else self._text(expr)

    def _infix(self, expr: sympy.Expr, operator: str) -> str:
        return f"({f' {operator} '.join(map(self._text, expr.args))})"

    def _folded(self, expr: sympy.Expr, function: str) -> str:
        first, *rest = map(self._print, expr.args)
        for argument in rest:
            first = f"{function}({first}, {argument})"
        return first


def fits_int32(expr: sympy.Expr, ranges: dict[sympy.Symbol, ValueRanges[Any]]) -> bool:
    """True when no value that arises while computing ``expr`` can leave 32 bits.

    ``ranges`` bounds the symbols; those it does not name are taken as unbounded.
    """
    if expr.has(PowByNatural):
        return False
    for part in sympy.preorder_traversal(expr):
        if isinstance(part, sympy.Expr) and part.is_integer:
            bounds = bound_sympy(part, ranges)
            if not (bounds.lower >= -_INT32_MAX and bounds.upper <= _INT32_MAX):
                return False
    return True


def _non_negative(*parts: sympy.Expr) -> bool:
    return all(
        part.is_nonnegative or (not part.has(PowByNatural) and bound_sympy(part).lower >= 0)
        for part in parts
    )


def _power_of_two(expr: sympy.Expr) -> int | None:
    if not expr.is_Integer or expr <= 0:
        return None
    value = int(expr)
    return value.bit_length() - 1 if value & (value - 1) == 0 else None


def _is_atom(text: str) -> bool:
    """True for a name, a literal, a call or one pair of parentheses around everything."""
    call = re.fullmatch(r"\w*(\(.*\))?", text)
    if call is None:
        return False
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")":
            return position == len(text) - 1
    return True


def _require(module: str) -> None:
    V.kernel.require(module)
