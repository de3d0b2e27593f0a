"""Which accesses become vectors."""

from __future__ import annotations

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torchvk_compile.codegen.lanes import LaneAccess, lane_access

X = sympy.Symbol("xindex", integer=True, nonnegative=True)
ROW = sympy.Symbol("r", integer=True, nonnegative=True)
SIZE = sympy.Symbol("s0", integer=True, positive=True)

CONTIGUOUS = LaneAccess(contiguous=True, aligned=True)
MISALIGNED = LaneAccess(contiguous=True, aligned=False)
SAME = LaneAccess(contiguous=False, aligned=True)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (X, CONTIGUOUS),
        (X + 8, CONTIGUOUS),
        (X + 1, MISALIGNED),
        (X + 4 * ROW, CONTIGUOUS),
        (X + 3 * ROW, MISALIGNED),
        (X + SIZE * ROW, MISALIGNED),
        (X + 4 * SIZE * ROW, CONTIGUOUS),
        (2 * X, None),
        (-X, None),
        (X * X, None),
        (SIZE * X, None),
        (sympy.Integer(3), SAME),
        (5 * ROW, SAME),
        (FloorDiv(X, 8), SAME),
        (FloorDiv(X, 6), None),
        (ModularIndexing(X, 1, 8), CONTIGUOUS),
        (ModularIndexing(X, 1, 6), None),
        (ModularIndexing(X, 1, SIZE), None),
        (ModularIndexing(X, 8, 3), SAME),
        (ModularIndexing(X, 2, 8), None),
        (ModularIndexing(X, 1, 8) + 8 * FloorDiv(X, 8), CONTIGUOUS),
        (ModularIndexing(X, 1, 8) + 9 * FloorDiv(X, 8), MISALIGNED),
        (FloorDiv(X + 1, 8), None),
        (X - ModularIndexing(X, 1, 8), SAME),
        (X + ModularIndexing(ROW, 1, 3), MISALIGNED),
    ],
)
def test_classification(index: sympy.Expr, expected: LaneAccess | None) -> None:
    assert lane_access(index, X, 4) == expected


@pytest.mark.parametrize("modulus", [4, 8, 12, 6, 5])
@pytest.mark.parametrize("divisor", [1, 2, 4, 8])
@pytest.mark.parametrize("factor", [1, 2, 4, 7])
def test_a_claimed_vector_is_one(modulus: int, divisor: int, factor: int) -> None:
    index = ModularIndexing(X, divisor, modulus) + factor * FloorDiv(X, divisor * modulus)
    access = lane_access(index, X, 4)
    if access is None:
        return
    for base in range(0, 96, 4):
        values = [int(index.subs(X, base + lane)) for lane in range(4)]
        step = 1 if access.contiguous else 0
        assert values == [values[0] + step * lane for lane in range(4)], (index, base)
        if access.contiguous and access.aligned:
            assert values[0] % 4 == 0, (index, base)
