"""Ordering: sort, topk, kthvalue, median, mode.

In: ATen ordering operators of vk tensors. Out: kernels of `codegen/sorts.py` that order keys, and pointwise nodes that
make the keys and fetch the values. Forbidden: Slang text; comparing floats (their keys are whole numbers).

A key is a whole number that orders as torch orders the value: -0.0 like 0.0, NaN above everything. Ties keep their
order, so every sort is stable. Values are fetched from the tensor itself, so their bits stay what they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import (
    clone,
    full,
    full_like,
    isnan,
    permute,
    reduce_argmax,
    slice_,
    sum_,
    to_dtype,
    unsqueeze,
    view,
)
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.functions import FloorDiv

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.selection import select_first, selects
from torchvk_compile.codegen.sorts import (
    LONGEST_SHORT_ROW,
    count_digits,
    order_short_rows,
    place_by_digit,
)
from torchvk_compile.lowering.scan import running_sum, scan

Index = Sequence[Any]

_POSITION_BITS = 32


@dataclasses.dataclass(frozen=True)
class KeyKind:
    """How the keys of a dtype are made.

    Attributes:
        bits: of the key that may differ.
        signed: the key orders as a signed number.
        bit_dtype: integer dtype that the value's bits are read as; None: the value itself is the key.
    """

    bits: int
    signed: bool
    bit_dtype: torch.dtype | None = None


KEY_KINDS = {
    torch.bool: KeyKind(8, False),
    torch.uint8: KeyKind(8, False),
    torch.uint16: KeyKind(16, False),
    torch.uint32: KeyKind(32, True, torch.int32),
    torch.uint64: KeyKind(64, True, torch.int64),
    torch.int8: KeyKind(8, True),
    torch.int16: KeyKind(16, True),
    torch.int32: KeyKind(32, True),
    torch.int64: KeyKind(64, True),
    torch.float16: KeyKind(16, True, torch.int16),
    torch.bfloat16: KeyKind(16, True, torch.int16),
    torch.float32: KeyKind(32, True, torch.int32),
    torch.float64: KeyKind(64, True, torch.int64),
}


def sort_key(value: Any, dtype: torch.dtype, descending: bool) -> Any:
    """The key of a value, in `ops`: int64 for 64-bit dtypes, int32 for all others."""
    kind = KEY_KINDS[dtype]
    register = torch.int64 if kind.bits == 64 else torch.int32
    if kind.bit_dtype is None:
        # Also without a change of dtype: a value that comes from an index expression may be narrower than it says.
        key = ops.to_dtype(value, register, src_dtype=dtype)
    else:
        bits = ops.to_dtype_bitcast(value, kind.bit_dtype, src_dtype=dtype)
        if kind.bit_dtype != register:
            bits = ops.to_dtype(bits, register, src_dtype=kind.bit_dtype)
        magnitude = ops.constant((1 << (kind.bits - 1)) - 1, register)
        if not dtype.is_floating_point:
            # Unsigned: the order of the numbers with the top bit inverted.
            key = ops.bitwise_xor(bits, ops.constant(-(1 << (kind.bits - 1)), register))
        else:
            sign = ops.bitwise_right_shift(bits, ops.constant(kind.bits - 1, register))
            key = ops.bitwise_xor(bits, ops.bitwise_and(sign, magnitude))
            # Both zeros are equal; so are all NaNs, whatever their bits.
            unsigned = ops.bitwise_and(bits, magnitude)
            key = ops.where(
                ops.eq(unsigned, ops.constant(0, register)), ops.constant(0, register), key
            )
            key = ops.where(ops.isnan(value), magnitude, key)
    return ops.bitwise_not(key) if descending else key


def order_rows(x: ir.TensorBox, descending: bool = False) -> ir.TensorBox:
    """Positions along the last dimension in ascending (descending) order of the values, as int32.

    Args:
        x: at least one dimension.
    """
    size = list(x.get_size())
    *outer, length = size
    kind = KEY_KINDS[x.get_dtype()]
    rows = V.graph.sizevars.simplify(sympy_product(outer))
    load, dtype = x.make_loader(), x.get_dtype()

    def key(index: Index) -> Any:
        return sort_key(load(index), dtype, descending)

    if V.graph.sizevars.guard_or_false(sympy.Le(length, LONGEST_SHORT_ROW)):
        inner = key if kind.bits == 64 else lambda index: _paired(key(index), index[-1])
        keys = view(_whole_numbers(x, inner), [rows, length])
        order = order_short_rows(keys, rows, length, wide=kind.bits == 64)
    elif kind.bits == 64:
        order = _radix_order_wide(x, key, rows, length)
    else:
        pairs = view(
            _whole_numbers(x, lambda index: _paired(key(index), index[-1])), [rows, length]
        )
        order = _radix_order(x, pairs, rows, length, kind.bits, kind.signed)
    return view(order, size)


def _whole_numbers(like: ir.TensorBox, inner: Callable[[Index], Any]) -> ir.TensorBox:
    result = ir.Pointwise.create(
        device=like.get_device(), dtype=torch.int64, inner_fn=inner, ranges=list(like.get_size())
    )
    result.realize()
    return result


def _paired(key: Any, position: sympy.Expr) -> Any:
    """The key in the upper half of a 64-bit number, the position in the lower half."""
    upper = ops.bitwise_left_shift(
        ops.to_dtype(key, torch.int64, src_dtype=torch.int32),
        ops.constant(_POSITION_BITS, torch.int64),
    )
    return ops.bitwise_or(upper, ops.index_expr(position, torch.int64))


def _radix_order(
    x: ir.TensorBox,
    pairs: ir.TensorBox,
    rows: sympy.Expr,
    length: sympy.Expr,
    bits: int,
    signed: bool,
) -> ir.TensorBox:
    profile = profile_of(x.get_device().index or 0)
    for digit in range(0, bits, 8):
        last = digit + 8 >= bits
        shift = _POSITION_BITS + digit
        flip = 0x80 if signed and last else 0
        counts = count_digits(pairs, rows, length, shift, flip)
        ends = running_sum(counts, 1)
        ends.realize()
        pairs = place_by_digit(pairs, ends, rows, length, shift, flip, profile, last=last)
    return pairs


def _radix_order_wide(
    x: ir.TensorBox, key: Callable[[Index], Any], rows: sympy.Expr, length: sympy.Expr
) -> ir.TensorBox:
    """By the lower half of the keys first, then by the upper half."""
    keys = view(_whole_numbers(x, key), [rows, length])
    load = keys.make_loader()

    def lower(index: Index) -> Any:
        shifted = ops.bitwise_left_shift(load(index), ops.constant(_POSITION_BITS, torch.int64))
        return ops.bitwise_or(shifted, ops.index_expr(index[-1], torch.int64))

    order = _radix_order(x, _whole_numbers(keys, lower), rows, length, 32, signed=False)
    load_order = order.make_loader()

    def upper(index: Index) -> Any:
        position = load_order(index)
        whole = load(
            [index[0], ops.indirect_indexing(position, length, check=False, wrap_neg=False)]
        )
        mask = ops.constant(-(1 << _POSITION_BITS), torch.int64)
        wide = ops.to_dtype(position, torch.int64, src_dtype=torch.int32)
        return ops.bitwise_or(ops.bitwise_and(whole, mask), wide)

    return _radix_order(x, _whole_numbers(keys, upper), rows, length, 32, signed=True)


# Operators ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Ordered:
    """A tensor and the order of its elements along one dimension.

    Attributes:
        x: the tensor, `dim` moved to the end, in memory.
        order: int32 positions, of x's size or, where no more was asked for, the first of every row.
        dim: where the dimension was.
    """

    x: ir.TensorBox
    order: ir.TensorBox
    dim: int

    def take(self, count: Any, first: Any = 0) -> tuple[ir.TensorBox, ir.TensorBox]:
        """Values and int64 indices of `count` places of the order, from place `first` on."""
        size = [*self.x.get_size()[:-1], sympy.sympify(count)]
        length = self.x.get_size()[-1]
        load, load_order = self.x.make_loader(), self.order.make_loader()

        def position(index: Index) -> Any:
            return load_order([*index[:-1], index[-1] + first])

        def value(index: Index) -> Any:
            place = ops.indirect_indexing(position(index), length, check=False, wrap_neg=False)
            return load([*index[:-1], place])

        def number(index: Index) -> Any:
            return ops.to_dtype(position(index), torch.int64, src_dtype=torch.int32)

        device = self.x.get_device()
        results = (
            ir.Pointwise.create(
                device=device, dtype=self.x.get_dtype(), inner_fn=value, ranges=size
            ),
            ir.Pointwise.create(device=device, dtype=torch.int64, inner_fn=number, ranges=size),
        )
        return tuple(permute(r, _moving(len(size), -1, self.dim)) for r in results)  # type: ignore[return-value]

    def pick(
        self, place: Callable[[Index], Any], keepdim: bool
    ) -> tuple[ir.TensorBox, ir.TensorBox]:
        """Value and int64 index of one place of the order per row.

        Args:
            place: from the row's index (without `dim`) to the place, as an integer in `ops`.
            keepdim: keep `dim` with size 1.
        """
        *outer, length = self.x.get_size()
        load, load_order = self.x.make_loader(), self.order.make_loader()

        def position(index: Index) -> Any:
            at = ops.indirect_indexing(place(index), length, check=False, wrap_neg=False)
            return load_order([*index, at])

        def value(index: Index) -> Any:
            at = ops.indirect_indexing(position(index), length, check=False, wrap_neg=False)
            return load([*index, at])

        def number(index: Index) -> Any:
            return ops.to_dtype(position(index), torch.int64, src_dtype=torch.int32)

        device = self.x.get_device()
        results = (
            ir.Pointwise.create(
                device=device, dtype=self.x.get_dtype(), inner_fn=value, ranges=outer
            ),
            ir.Pointwise.create(device=device, dtype=torch.int64, inner_fn=number, ranges=outer),
        )
        return tuple(unsqueeze(r, self.dim) if keepdim else r for r in results)  # type: ignore[return-value]


def ordered(x: ir.TensorBox, dim: int, descending: bool = False) -> Ordered:
    """Order `x` along `dim`.

    Args:
        x: at least one dimension.
        dim: may be negative.
    """
    moved, dim = _moved_to_end(x, dim)
    return Ordered(moved, order_rows(moved, descending), dim)


def first_in_order(x: ir.TensorBox, dim: int, count: Any, descending: bool = False) -> Ordered:
    """`ordered`, of whose order only the first `count` places will be looked at."""
    moved, dim = _moved_to_end(x, dim)
    *outer, length = moved.get_size()
    if not selects(length, count):
        return Ordered(moved, order_rows(moved, descending), dim)
    rows = V.graph.sizevars.simplify(sympy_product(outer))
    first = select_first(
        view(moved, [rows, length]), rows, length, int(count), descending=descending
    )
    return Ordered(moved, view(first, [*outer, int(count)]), dim)


def _moved_to_end(x: ir.TensorBox, dim: int) -> tuple[ir.TensorBox, int]:
    """`x` in memory with dimension `dim` last, and where that was, counted from the front."""
    rank = len(x.get_size())
    moved = permute(x, _moving(rank, dim, -1))
    return ir.TensorBox(ir.ExternKernel.realize_input(moved)), dim % rank


def _moving(rank: int, source: int, target: int) -> list[int]:
    """The permutation that moves dimension `source` to `target`."""
    order = [d for d in range(rank) if d != source % rank]
    order.insert(target % rank, source % rank)
    return order


def _sort(x: Any, dim: int = -1, descending: bool = False) -> tuple[ir.TensorBox, ir.TensorBox]:
    return _sort_stable(x, stable=True, dim=dim, descending=descending)


def _sort_stable(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[ir.TensorBox, ir.TensorBox]:
    if not x.get_size():
        return _alone(x)
    return ordered(x, dim, descending).take(x.get_size()[dim])


def _alone(x: ir.TensorBox) -> tuple[ir.TensorBox, ir.TensorBox]:
    """A tensor without dimensions is its own order."""
    return clone(x), full_like(x, 0, dtype=torch.int64)


def _topk(
    x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[ir.TensorBox, ir.TensorBox]:
    if not x.get_size():
        values, indices = _alone(x)
        return (
            (slice_(view(values, [1]), 0, 0, k), slice_(view(indices, [1]), 0, 0, k))
            if k == 0
            else (values, indices)
        )
    return first_in_order(x, dim, k, descending=largest).take(k)


def _kthvalue(
    x: Any, k: Any, dim: int = -1, keepdim: bool = False
) -> tuple[ir.TensorBox, ir.TensorBox]:
    if not x.get_size():
        return _alone(x)
    place = sympy.sympify(k) - 1
    rows = first_in_order(x, dim, k)
    return rows.pick(lambda index: ops.index_expr(place, torch.int64), keepdim)


def _median_dim(
    x: Any, dim: int, keepdim: bool = False, *, ignore_nan: bool = False
) -> tuple[ir.TensorBox, ir.TensorBox]:
    if not x.get_size():
        return _alone(x)
    length = x.get_size()[dim]
    middle = FloorDiv(length - 1, 2)
    if not x.get_dtype().is_floating_point:
        return ordered(x, dim).pick(lambda index: ops.index_expr(middle, torch.int64), keepdim)
    dim = dim % len(x.get_size())
    nans = sum_(to_dtype(isnan(x), torch.int64), [dim])
    load_nans = nans.make_loader()

    def place(index: Index) -> Any:
        """NaNs are at the end: skip them, or stop at the first."""
        count, whole = load_nans(index), ops.index_expr(length, torch.int64)
        if ignore_nan:
            numbers = ops.maximum(ops.sub(whole, count), ops.constant(1, torch.int64))
            half = ops.sub(numbers, ops.constant(1, torch.int64))
            return ops.bitwise_right_shift(half, ops.constant(1, torch.int64))
        found = ops.gt(count, ops.constant(0, torch.int64))
        return ops.where(found, ops.sub(whole, count), ops.index_expr(middle, torch.int64))

    return ordered(x, dim).pick(place, keepdim)


def _median(x: Any, *, ignore_nan: bool = False) -> ir.TensorBox:
    numel = sympy_product(x.get_size())
    if V.graph.sizevars.statically_known_equals(numel, 0):
        return full([], torch.nan, dtype=x.get_dtype(), device=x.get_device())
    return _median_dim(view(x, [numel]), 0, ignore_nan=ignore_nan)[0]


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> tuple[ir.TensorBox, ir.TensorBox]:
    """The smallest of the most frequent values, and where it is last."""
    if not x.get_size():
        return _alone(x)
    rows = ordered(x, dim)
    size = list(rows.x.get_size())
    load, load_order = rows.x.make_loader(), rows.order.make_loader()

    def sorted_value(index: Index) -> Any:
        at = ops.indirect_indexing(load_order(index), size[-1], check=False, wrap_neg=False)
        return load([*index[:-1], at])

    def start(index: Index) -> Any:
        """The element's place where a run of equal values starts, 0 elsewhere."""
        place = ops.index_expr(index[-1], torch.int64)
        first = ops.eq(place, ops.constant(0, torch.int64))
        before = ops.masked(
            ops.logical_not(first),
            lambda: sorted_value([*index[:-1], index[-1] - 1]),
            _zero(rows.x.get_dtype()),
        )
        starts = ops.ne(before, sorted_value(index))
        return ops.where(starts, place, ops.constant(0, torch.int64))

    device = rows.x.get_device()
    (starts,) = scan(
        device, [torch.int64], [start], size, len(size) - 1, lambda a, b: (ops.maximum(a[0], b[0]),)
    )
    load_start = starts.make_loader()

    def run_length(index: Index) -> Any:
        return ops.sub(ops.index_expr(index[-1], torch.int64), load_start(index))

    lengths = ir.Pointwise.create(
        device=device, dtype=torch.int64, inner_fn=run_length, ranges=size
    )
    # Of equally long runs the first one wins, and of its elements the last.
    return rows.pick(reduce_argmax(lengths, axis=len(size) - 1).make_loader(), keepdim)


def _zero(dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def register_sorts() -> None:
    """Route the ordering operators of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    aten = torch.ops.aten
    route(aten.sort.default, _sort)
    route(aten.sort.stable, _sort_stable)
    route(aten.topk.default, _topk)
    route(aten.kthvalue.default, _kthvalue)
    route(aten.median.default, _median)
    route(aten.median.dim, _median_dim)
    route(aten.nanmedian.default, functools.partial(_median, ignore_nan=True))
    route(aten.nanmedian.dim, functools.partial(_median_dim, ignore_nan=True))
    route(aten.mode.default, _mode)
