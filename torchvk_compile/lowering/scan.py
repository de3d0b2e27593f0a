"""Running sums, products and extrema: cumsum, cumprod, logcumsumexp, cummax, cummin.

In: ATen scans of vk tensors. Out: Inductor's scan nodes, which producers and consumers fuse with. Forbidden: Slang
text; recovering a prefix by subtraction.

A long row that would occupy one workgroup alone is scanned in two levels: tiles of it side by side, then the tiles'
totals (by the same rule), then a pointwise step that combines each element with the total before its tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.ir import ReductionHint
from torch._inductor.lowering import clone, full_like, to_dtype
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.functions import CeilDiv, FloorDiv, ModularIndexing

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.dtypes import compute_dtype, is_integer

Loader = Callable[[Sequence[sympy.Expr]], Any]
Combine = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]

TILE = 2048
"""Elements that one workgroup scans in a row of two levels."""

_WORTH_SPLITTING = 4 * TILE
_ASSUMED_COMPUTE_UNITS = 16
_WORKGROUP = 256


class _WholeScan(ir.Scan):
    """Creates scans that Inductor does not split: `scan` below decides that."""

    @classmethod
    def num_splits(cls, *args: Any, **kwargs: Any) -> tuple[ReductionHint, int]:
        return ReductionHint.DEFAULT, 1


def register_scans() -> None:
    """Route the scans of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    aten = torch.ops.aten
    route(aten.cumsum.default, _cumsum)
    route(aten.cumprod.default, _cumprod)
    route(aten.logcumsumexp.default, _logcumsumexp)
    route(aten.cummax.default, lambda x, dim: _running_extremum("argmax", x, dim))
    route(aten.cummin.default, lambda x, dim: _running_extremum("argmin", x, dim))


def scan(
    device: torch.device,
    dtypes: Sequence[torch.dtype],
    loaders: Sequence[Loader],
    size: Sequence[sympy.Expr],
    dim: int,
    combine: Combine,
) -> list[ir.TensorBox]:
    """Inclusive scan of tuples of values along `dim`.

    Args:
        device: of the results.
        dtypes: of the values; half precision is carried as float32 until the end.
        loaders: from an index to each value.
        size: of the results.
        dim: not negative.
        combine: (earlier, later) → combined, in `ops`; associative.

    Returns:
        One tensor per value.
    """
    if _is_worth_splitting(device, size, dim):
        return _two_levels(device, dtypes, loaders, size, dim, combine)
    return list(
        _WholeScan.create(
            device=device,
            dtypes=tuple(dtypes),
            inner_fns=tuple(loaders),
            size=list(size),
            axis=dim,
            combine_fn=combine,
        )
    )


def _is_worth_splitting(device: torch.device, size: Sequence[sympy.Expr], dim: int) -> bool:
    """Whether the row is long and the rows are too few to keep the device busy."""
    hint = V.graph.sizevars.optimization_hint
    if hint(size[dim], fallback=_WORTH_SPLITTING) < _WORTH_SPLITTING:
        return False
    rows = [hint(s, fallback=1) for s in size[:dim]]
    neighbours = [hint(s, fallback=1) for s in size[dim + 1 :]]
    groups = 1
    for extent in rows:
        groups *= extent
    inner = 1
    for extent in neighbours:
        inner *= extent
    # Rows that lie side by side share workgroups.
    groups *= -(-inner // _WORKGROUP)
    compute_units = profile_of(device.index or 0).compute_units or _ASSUMED_COMPUTE_UNITS
    return groups < 2 * compute_units


def _two_levels(
    device: torch.device,
    dtypes: Sequence[torch.dtype],
    loaders: Sequence[Loader],
    size: Sequence[sympy.Expr],
    dim: int,
    combine: Combine,
) -> list[ir.TensorBox]:
    length = size[dim]
    tiles = CeilDiv(length, TILE)
    registers = [compute_dtype(dtype) for dtype in dtypes]
    whole = V.graph.sizevars.statically_known_multiple_of(length, TILE)

    def tiled(loader: Loader, dtype: torch.dtype, register: torch.dtype) -> Loader:
        def load(index: Sequence[sympy.Expr]) -> Any:
            position = index[dim] * TILE + index[dim + 1]

            def element() -> Any:
                value = loader([*index[:dim], position, *index[dim + 2 :]])
                return (
                    value if dtype == register else ops.to_dtype(value, register, src_dtype=dtype)
                )

            if whole:
                return element()
            inside = ops.lt(
                ops.index_expr(position, torch.int64), ops.index_expr(length, torch.int64)
            )
            return ops.masked(inside, element, _nothing(register))

        return load

    local = scan(
        device,
        registers,
        [tiled(*parts) for parts in zip(loaders, dtypes, registers, strict=True)],
        [*size[:dim], tiles, sympy.Integer(TILE), *size[dim + 1 :]],
        dim + 1,
        combine,
    )
    own = [x.make_loader() for x in local]

    def last_of_tile(loader: Loader) -> Loader:
        return lambda index: loader([*index[: dim + 1], sympy.Integer(TILE - 1), *index[dim + 1 :]])

    totals = scan(
        device,
        registers,
        [last_of_tile(loader) for loader in own],
        [*size[:dim], tiles, *size[dim + 1 :]],
        dim,
        combine,
    )
    before = [x.make_loader() for x in totals]

    def result(which: int) -> Loader:
        def load(index: Sequence[sympy.Expr]) -> Any:
            tile, rest = FloorDiv(index[dim], TILE), ModularIndexing(index[dim], 1, TILE)
            later = tuple(loader([*index[:dim], tile, rest, *index[dim + 1 :]]) for loader in own)
            follows = ops.gt(ops.index_expr(tile, torch.int64), ops.constant(0, torch.int64))
            earlier = tuple(
                ops.masked(
                    follows,
                    lambda loader=loader: loader([*index[:dim], tile - 1, *index[dim + 1 :]]),
                    _nothing(register),
                )
                for loader, register in zip(before, registers, strict=True)
            )
            value = ops.where(follows, combine(earlier, later)[which], later[which])
            if dtypes[which] != registers[which]:
                value = ops.to_dtype(value, dtypes[which], src_dtype=registers[which])
            return value

        return load

    return [
        ir.Pointwise.create(device=device, dtype=dtype, inner_fn=result(i), ranges=list(size))
        for i, dtype in enumerate(dtypes)
    ]


def _nothing(dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return False
    return 0 if is_integer(dtype) else 0.0


def running_sum(x: ir.TensorBox, dim: int) -> ir.TensorBox:
    """cumsum in x's own dtype."""
    return _scan_one(x, dim, lambda a, b: (ops.add(a[0], b[0]),))


def _scan_one(x: ir.TensorBox, dim: int, combine: Combine) -> ir.TensorBox:
    size = x.get_size()
    (result,) = scan(
        x.get_device(), [x.get_dtype()], [x.make_loader()], size, dim % len(size), combine
    )
    return result


def _in_sum_dtype(x: ir.TensorBox, dtype: torch.dtype | None) -> ir.TensorBox:
    own = x.get_dtype()
    if dtype is None:
        dtype = torch.int64 if is_integer(own) or own is torch.bool else own
    return to_dtype(x, dtype) if dtype != own else x


def _cumsum(x: ir.TensorBox, dim: int, *, dtype: torch.dtype | None = None) -> ir.TensorBox:
    x = _in_sum_dtype(x, dtype)
    if not x.get_size():
        return clone(x)
    return running_sum(x, dim)


def _cumprod(x: ir.TensorBox, dim: int, *, dtype: torch.dtype | None = None) -> ir.TensorBox:
    x = _in_sum_dtype(x, dtype)
    if not x.get_size():
        return clone(x)
    return _scan_one(x, dim, lambda a, b: (ops.mul(a[0], b[0]),))


def _logcumsumexp(x: ir.TensorBox, dim: int) -> ir.TensorBox:
    if not x.get_size():
        return clone(x)

    def combine(earlier: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        low, high = ops.minimum(earlier[0], later[0]), ops.maximum(earlier[0], later[0])
        # Equal infinities have no difference; either of them is the result.
        distinct = ops.logical_or(ops.ne(low, high), ops.logical_not(ops.isinf(low)))
        grown = ops.add(ops.log1p(ops.exp(ops.sub(low, high))), high)
        return (ops.where(distinct, grown, earlier[0]),)

    return _scan_one(x, dim, combine)


def _running_extremum(kind: str, x: ir.TensorBox, dim: int) -> tuple[ir.TensorBox, ir.TensorBox]:
    """Running maximum or minimum and where it was last seen; NaN beats every number."""
    size, dtype = x.get_size(), x.get_dtype()
    if not size:
        return clone(x), full_like(x, 0, dtype=torch.int64)
    dim = dim % len(size)
    values, indices = scan(
        x.get_device(),
        [dtype, torch.int64],
        [x.make_loader(), lambda index: ops.index_expr(index[dim], torch.int64)],
        size,
        dim,
        ir.get_reduction_combine_fn(kind, dtype=dtype, arg_break_ties_left=False),  # type: ignore[arg-type]
    )
    return values, indices
