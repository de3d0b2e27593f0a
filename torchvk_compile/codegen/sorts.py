"""Kernels that order rows: in shared memory where a row fits, by radix sort otherwise.

In: keys as whole numbers, one row after the other. Out: for every row the positions of its elements in ascending order,
equal keys in their own order. Forbidden: knowing what the keys stand for.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.launch import Launch, Shell, contiguous_input
from torchvk_compile.codegen.layout import reduction_subgroup

LONGEST_SHORT_ROW = 2048
"""Longest row that is ordered within one workgroup: its elements take at most 32 KiB of shared memory."""

_TILE = 2048
_WORKGROUP = 256
_DIGIT_VALUES = 256


def order_short_rows(
    keys: Any, rows: sympy.Expr, length: sympy.Expr, *, wide: bool
) -> ir.TensorBox:
    """Order rows of at most `LONGEST_SHORT_ROW` elements.

    Args:
        keys: int64, rows x length: the key itself if `wide`, else key and position (see `torchvk_sort.slang`).

    Returns:
        int32 positions, rows x length.
    """
    node = contiguous_input(keys)
    shell = Shell(
        template="sort_rows.slang.j2",
        workgroup_size=_WORKGROUP,
        modules=("torchvk_memory", "torchvk_sort"),
        values={"tile": LONGEST_SHORT_ROW, "wide": wide},
    )
    return Launch.create(
        node.get_device(),
        torch.int32,
        [rows, length],
        shell,
        {"keys": node},
        {"row_count": rows, "row_length": length},
        CeilDiv(rows * _padded(length), sympy.Integer(LONGEST_SHORT_ROW)),
    )


def _padded(length: sympy.Expr) -> sympy.Expr:
    """The smallest power of two that is not below `length`, or a bound on it."""
    if isinstance(length, (int, sympy.Integer)):
        return sympy.Integer(1 << max(int(length) - 1, 0).bit_length())
    return 2 * length


def count_digits(
    pairs: Any, rows: sympy.Expr, length: sympy.Expr, shift: int, flip: int
) -> ir.TensorBox:
    """How often each value of the byte at bit `shift` occurs in each tile: int32, rows x 256 * tiles.

    Args:
        flip: bits of the byte to invert, so that it orders as an unsigned number.
    """
    node = contiguous_input(pairs)
    tiles = CeilDiv(length, sympy.Integer(_TILE))
    shell = Shell(
        template="sort_count.slang.j2",
        workgroup_size=_WORKGROUP,
        modules=("torchvk_memory", "torchvk_sort"),
        values={"tile": _TILE},
    )
    return Launch.create(
        node.get_device(),
        torch.int32,
        [rows, _DIGIT_VALUES * tiles],
        shell,
        {"pairs": node},
        {
            "row_count": rows,
            "row_length": length,
            "tiles": tiles,
            "shift": sympy.Integer(shift),
            "flip": sympy.Integer(flip),
        },
        rows * tiles,
    )


def place_by_digit(
    pairs: Any,
    ends: Any,
    rows: sympy.Expr,
    length: sympy.Expr,
    shift: int,
    flip: int,
    profile: Any,
    *,
    last: bool,
) -> ir.TensorBox:
    """The rows ordered by the byte at bit `shift`, equal bytes in their own order.

    Args:
        ends: running sums of `count_digits`.
        last: return the int32 positions instead of the pairs.
    """
    pairs_node, ends_node = contiguous_input(pairs), contiguous_input(ends)
    tiles = CeilDiv(length, sympy.Integer(_TILE))
    subgroup = reduction_subgroup(profile)
    shell = Shell(
        template="sort_place.slang.j2",
        workgroup_size=_WORKGROUP,
        modules=("torchvk_memory", "torchvk_reduce", "torchvk_sort"),
        values={"tile": _TILE, "subgroup": subgroup, "last": last},
        subgroup_size=subgroup if subgroup > 1 else 0,
    )
    return Launch.create(
        pairs_node.get_device(),
        torch.int32 if last else torch.int64,
        [rows, length],
        shell,
        {"pairs": pairs_node, "ends": ends_node},
        {
            "row_count": rows,
            "row_length": length,
            "tiles": tiles,
            "shift": sympy.Integer(shift),
            "flip": sympy.Integer(flip),
        },
        rows * tiles,
    )
