"""Kernels that take the first elements of rows in their order, without ordering the rest.

In: rows as they lie in memory. Out: for every row the positions of its first elements. Forbidden: more elements than
`MOST_SELECTED`; a sort is faster then.

Every result takes one look at the row, so a row is read from registers or a cache. Long rows are cut into pieces, whose
first elements are the candidates of the next round.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.launch import Launch, Shell, contiguous_input
from torchvk_compile.codegen.layout import WORKGROUP_SIZE, reduction_subgroup

MOST_SELECTED = 64

_PIECE = 1024
_MOST_HELD = 32
_COLUMNS_WITHOUT_SUBGROUPS = 64

_KEYS = {
    torch.float32: "keyOfFloat",
    torch.float16: "keyOfHalf",
    torch.bfloat16: "keyOfBfloat16",
    torch.float64: "keyOfDouble",
}


def select_first(
    x: Any, rows: sympy.Expr, length: sympy.Expr, count: int, *, descending: bool
) -> ir.TensorBox:
    """Positions of the first `count` elements of every row, ties in their own order.

    Args:
        x: rows x length.
        count: at most `MOST_SELECTED` and `length`.

    Returns:
        int32, rows x count.
    """
    values = contiguous_input(x)
    candidates, places = None, length
    while isinstance(places, (int, sympy.Integer)) and places > 2 * _PIECE:
        pieces = CeilDiv(places, sympy.Integer(_PIECE))
        cut = _Cut(places, pieces, sympy.Integer(_PIECE))
        candidates = _select(values, candidates, rows, length, cut, count, descending)
        places = pieces * count
    whole = _Cut(places, sympy.S.One, places)
    return _select(values, candidates, rows, length, whole, count, descending)


@dataclasses.dataclass(frozen=True)
class _Cut:
    """The `places` of a row in `pieces` of `width`, the last of which may be shorter."""

    places: sympy.Expr
    pieces: sympy.Expr
    width: sympy.Expr


def _select(
    values: ir.IRNode,
    candidates: ir.TensorBox | None,
    rows: sympy.Expr,
    length: sympy.Expr,
    cut: _Cut,
    count: int,
    descending: bool,
) -> ir.TensorBox:
    """The first `count` of each piece of every row: int32, rows x pieces * count."""
    dtype, device = values.get_dtype(), values.get_device()
    subgroup = reduction_subgroup(profile_of(device.index or 0))
    columns = subgroup if subgroup > 1 else _COLUMNS_WITHOUT_SUBGROUPS
    side = max(WORKGROUP_SIZE // columns, 1)
    held = 0
    if isinstance(cut.width, (int, sympy.Integer)) and cut.width <= _MOST_HELD * columns:
        held = -(-int(cut.width) // columns)
    shell = Shell(
        template="select_first.slang.j2",
        workgroup_size=side * columns,
        modules=("torchvk_memory", "torchvk_reduce", "torchvk_order"),
        values={
            "rows": side,
            "columns": columns,
            "subgroup": subgroup,
            "held": held,
            "descending": descending,
            "candidates": candidates is not None,
            "key": _KEYS.get(dtype, "keyOfNumber"),
            "key_type": "int64_t" if dtype.itemsize == 8 else "int",
        },
        subgroup_size=subgroup if subgroup > 1 else 0,
    )
    inputs = {"values": values}
    if candidates is not None:
        inputs["candidates"] = contiguous_input(candidates)
    return Launch.create(
        device,
        torch.int32,
        [rows, cut.pieces * count],
        shell,
        inputs,
        {
            "row_count": rows,
            "row_length": length,
            "places": cut.places,
            "pieces": cut.pieces,
            "width": cut.width,
            "count": sympy.Integer(count),
        },
        CeilDiv(rows * cut.pieces, sympy.Integer(side)),
    )


def selects(length: sympy.Expr, count: Any) -> bool:
    """Whether `select_first` takes so many elements of rows of that length."""
    if not isinstance(count, (int, sympy.Integer)):
        return False
    return 0 < count <= MOST_SELECTED and V.graph.sizevars.statically_known_geq(length, count)
