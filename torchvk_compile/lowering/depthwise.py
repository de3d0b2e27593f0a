"""Convolutions of many groups with few channels each, depthwise above all: plain loops instead of products of tiles.

In: both sides of a convolution. Out: Inductor's loop IR, which fuses with its neighbours. Forbidden: Slang text.

Such convolutions move much memory for little arithmetic, and a tile of a product would be mostly empty.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import ops
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

if TYPE_CHECKING:
    from torchvk_compile.lowering.convolution import Geometry

_MOST_TERMS = 64
"""Products per output up to which a loop is written out."""

_MOST_CHANNELS = 4
"""Channels per group up to which tiles would be mostly empty."""


def is_depthwise(geometry: Geometry, reduced: int) -> bool:
    """Whether loops pay, for `reduced` channels of a group summed over."""
    terms = reduced * math.prod(geometry.taps)
    few = max(geometry.channels) <= _MOST_CHANNELS
    return geometry.groups > 1 and few and terms <= _MOST_TERMS


def multiply_depthwise(
    geometry: Geometry,
    source: ir.IRNode,
    weights: ir.IRNode,
    size: Sequence[sympy.Expr],
    accumulator: torch.dtype,
    bias: ir.IRNode | None,
    *,
    adjoint: bool,
) -> ir.TensorBox:
    """As `convolution.multiply_patches`."""
    narrow, wide = geometry.channels
    outputs, channels = (wide, narrow) if adjoint else (narrow, wide)
    load = ir.TensorBox(source).make_loader()
    load_weight = ir.TensorBox(weights).make_loader()
    load_bias = None if bias is None else ir.TensorBox(bias).make_loader()
    extents = source.get_size()[2:]

    def inner(index: Sequence[sympy.Expr]) -> Any:
        image, channel, *place = index
        group = FloorDiv(channel, outputs) if outputs > 1 else channel
        member = ModularIndexing(channel, 1, outputs) if outputs > 1 else sympy.Integer(0)
        total = ops.constant(0, accumulator)
        for c, *taps in itertools.product(range(channels), *map(range, geometry.taps)):
            at, mask = _source_place(geometry, place, taps, extents, adjoint)
            first, second = (
                (group * channels + c, member) if adjoint else (channel, sympy.Integer(c))
            )
            value = _masked(load, [image, group * channels + c, *at], mask, accumulator)
            weight = ops.to_dtype(
                load_weight([first, second, *map(sympy.Integer, taps)]), accumulator
            )
            total = ops.add(total, ops.mul(value, weight))
        if load_bias is not None:
            total = ops.add(total, ops.to_dtype(load_bias([channel]), accumulator))
        return ops.to_dtype(total, source.get_dtype(), src_dtype=accumulator)

    result = ir.Pointwise.create(
        device=source.get_device(),
        dtype=source.get_dtype(),
        inner_fn=inner,
        ranges=[source.get_size()[0], geometry.groups * outputs, *size],
    )
    result.realize()
    return result


def depthwise_weight_gradient(
    geometry: Geometry, narrow: ir.IRNode, wide: ir.IRNode, accumulator: torch.dtype
) -> ir.TensorBox:
    """As `convolution_weights.weight_gradient`."""
    rows, channels = geometry.channels
    load_narrow = ir.TensorBox(narrow).make_loader()
    load_wide = ir.TensorBox(wide).make_loader()
    extents = wide.get_size()[2:]

    def inner(index: Sequence[sympy.Expr], reduced: Sequence[sympy.Expr]) -> Any:
        first, second, *taps = index
        image, *place = reduced
        group = FloorDiv(first, rows) if rows > 1 else first
        at, mask = _source_place(geometry, place, taps, extents, adjoint=False)
        value = _masked(load_wide, [image, group * channels + second, *at], mask, accumulator)
        return ops.mul(ops.to_dtype(load_narrow([image, first, *place]), accumulator), value)

    total = ir.Reduction.create(
        device=wide.get_device(),
        dst_dtype=accumulator,
        src_dtype=accumulator,
        inner_fn=inner,
        ranges=[geometry.first, geometry.second, *geometry.taps],
        reduction_ranges=[narrow.get_size()[0], *narrow.get_size()[2:]],
        reduction_type="sum",
    )
    total.realize()
    return total


def _source_place(
    geometry: Geometry,
    place: Sequence[sympy.Expr],
    taps: Sequence[Any],
    extents: Sequence[sympy.Expr],
    adjoint: bool,
) -> tuple[list[sympy.Expr], Any]:
    """Where a tap reads, and whether there is anything (None: always)."""
    at: list[sympy.Expr] = []
    conditions: list[Any] = []
    for d, (position, tap, extent) in enumerate(zip(place, taps, extents, strict=True)):
        stride, padding, reach = geometry.stride[d], geometry.padding[d], tap * geometry.dilation[d]
        if not adjoint:
            index = position * stride + reach - padding
        elif stride == 1:
            index = position + padding - reach
        else:
            # Shifted by a multiple of the stride, so that no negative number is divided.
            shift = -(-geometry.dilation[d] * geometry.taps[d] // stride)
            shifted = position + padding - reach + shift * stride
            rest = ops.index_expr(ModularIndexing(shifted, 1, stride), torch.int32)
            conditions.append(ops.eq(rest, ops.constant(0, torch.int32)))
            index = FloorDiv(shifted, stride) - shift
        at.append(index)
        if adjoint or padding > 0:
            value = ops.index_expr(index, torch.int64)
            conditions.append(ops.ge(value, ops.constant(0, torch.int64)))
            conditions.append(ops.lt(value, ops.index_expr(extent, torch.int64)))
    mask = None
    for condition in conditions:
        mask = condition if mask is None else ops.and_(mask, condition)
    return at, mask


def _masked(load: Any, index: Sequence[sympy.Expr], mask: Any, accumulator: torch.dtype) -> Any:
    if mask is None:
        return ops.to_dtype(load(index), accumulator)
    zero = 0.0 if accumulator.is_floating_point else 0
    return ops.to_dtype(ops.masked(mask, lambda: load(index), zero), accumulator)
