"""Literals and index expressions: the text means what Python means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from shader_functions import SLANG_TYPES, evaluate
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import (
    CeilDiv,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    Min,
    ModularIndexing,
    PowByNatural,
    PythonMod,
    ToFloat,
    TruncToInt,
    Where,
)
from torch.utils._sympy.value_ranges import ValueRanges

from torchvk_compile.codegen import dtypes
from torchvk_compile.codegen.printer import SlangExprPrinter, fits_int32
from torchvk_compile.errors import UnsupportedOperatorError


class Requirements:
    """Stands for the kernel: remembers which modules were asked for."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def require(self, module: str) -> None:
        self.modules.add(module)


# ---- literals ------------------------------------------------------------------------------------

FLOATS = [0.0, -0.0, 0.1, 1 / 3, -2.5, 1e-45, 1.1754944e-38, 3.4028235e38, 1e300, 16777217.0]
FLOATS += [math.inf, -math.inf, math.nan, math.pi, 123456789.0, 5e-324, 2.0**-140]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", FLOATS)
def test_float_literals_are_exact(value: float, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    text = dtypes.literal(value, dtype)
    actual = evaluate(text, np.zeros(1, np.int32), result=name)
    expected = torch.tensor([value], dtype=dtype).numpy()
    bits = f"u{expected.itemsize}"
    assert math.isnan(value) or actual.view(bits) == expected.view(bits), text


@pytest.mark.parametrize("name", [name for name in SLANG_TYPES if "int" in name])
def test_integer_literals_are_exact_and_wrap(name: str) -> None:
    info = np.iinfo(name)
    for value in (int(info.min), int(info.max), 0, 1, int(info.min) + 1, int(info.max) + 1):
        text = dtypes.literal(value, getattr(torch, name))
        actual = evaluate(text, np.zeros(1, np.int32), result=name)
        expected = (value - int(info.min)) % (1 << info.bits) + int(info.min)
        assert int(actual[0]) == expected, text


def test_every_dtype_has_storage_and_computation() -> None:
    assert set(dtypes.STORAGE_TYPES) == set(dtypes.COMPUTE_TYPES)
    assert dtypes.storage_type(torch.bfloat16) == "uint16_t"
    assert dtypes.compute_type(torch.float16) == "float"


def test_a_missing_dtype_is_named() -> None:
    class Small:
        float64 = int64 = int16 = int8 = storage16 = storage8 = False

    with pytest.raises(UnsupportedOperatorError, match="float64"):
        dtypes.require_supported(torch.float64, Small(), "aten.sin")
    with pytest.raises(UnsupportedOperatorError, match="complex64"):
        dtypes.require_supported(torch.complex64, None, "aten.sin")
    dtypes.require_supported(torch.float32, Small(), "aten.sin")


# ---- index expressions ---------------------------------------------------------------------------

X, Y = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "ab")
N = sympy.Symbol("a", integer=True)  # may be negative

EXPRESSIONS = [
    X + 3 * Y - 7,
    -X - 2 * Y,
    (X + 1) * (Y - 2),
    X**2 - 3 * X,
    FloorDiv(X, 3),
    FloorDiv(X, 8),
    FloorDiv(X - 100, 7),
    FloorDiv(X - 100, 8),
    FloorDiv(X, Y + 1),
    5 * FloorDiv(X + Y, 3) - 2,
    ModularIndexing(X, 4, 7),
    ModularIndexing(X + Y, 1, 8),
    ModularIndexing(X, 6, 5) + 10 * ModularIndexing(Y, 1, 3),
    PythonMod(X - 100, 7),
    PythonMod(X - 100, 16),
    CeilDiv(X, 4),
    Min(X, 3 * Y),
    Max(X, Y, 50 - X),
    Where(X < Y, X, Y + 1),
    Where(sympy.And(X >= 3, Y < 50), X, -Y),
    sympy.Piecewise((X, X < 7), (Y, Y < 7), (sympy.Integer(9), True)),
    PowByNatural(sympy.Integer(3), ModularIndexing(X, 1, 5)),
    TruncToInt(FloatTrueDiv(ToFloat(X), 2.5)),
    FloorToInt(FloatTrueDiv(ToFloat(X - 50), 2.5)),
    TruncToInt(IntTrueDiv(X, Y + 1)),
    sympy.Abs(X - Y),
]


@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_index_expressions(expr: Any, widen: bool) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.integers(0, 200, 300).astype(np.int32) for _ in range(2))
    kernel = Requirements()
    with V.set_kernel_handler(kernel):
        text = SlangExprPrinter(widen=widen).doprint(expr)
    result = "int64" if widen else "int32"
    actual = evaluate(text, a, b, result=result, modules=sorted(kernel.modules))
    for x, y, value in zip(a.tolist(), b.tolist(), actual.tolist()):
        assert value == int(expr.subs({X: x, Y: y})), f"{text} at ({x}, {y})"


def test_cheap_forms_where_operands_cannot_be_negative() -> None:
    printer = SlangExprPrinter()
    with V.set_kernel_handler(Requirements()):
        assert printer.doprint(FloorDiv(X, 8)) == "(a >> 3)"
        assert printer.doprint(ModularIndexing(X, 1, 16)) == "(a & 15)"
        assert printer.doprint(FloorDiv(X, 3)) == "indexDiv(a, 3)"
        assert printer.doprint(FloorDiv(N, 3)) == "floorDiv(a, 3)"


def test_large_constants_are_wide() -> None:
    printer = SlangExprPrinter()
    assert printer.doprint(sympy.Integer(2**31 - 1)) == "2147483647"
    assert printer.doprint(sympy.Integer(2**31)) == "2147483648LL"


def test_range_of_intermediate_values() -> None:
    small, large = {X: ValueRanges(0, 1000)}, {X: ValueRanges(0, 2**20)}
    assert fits_int32(4096 * X, small)
    assert not fits_int32(4096 * X, large)
    assert not fits_int32(FloorDiv(4096 * X + 1, 5000), large)
    assert not fits_int32(X, {})
