"""Writing to computed places: scatter, scatter_reduce, index_put, index_add, index_copy, index_reduce, masks.

In: ATen scatters of vk tensors. Out: Inductor's scatter nodes, whose values fuse with their producers. Forbidden: Slang
text; handing any dtype back to eager.

Values that meet at one place are combined by atomic operations. Half precision is combined in float32
and rounded once. Under ``torch.use_deterministic_algorithms(True)``, where the order of combination would
show, values are sorted by their place first (`ordered_scatter`).
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
    check_and_broadcast_indices,
    clamp,
    clone,
    expand,
    full_like,
    index_output_size_and_inner_fn,
    mutate_to,
    to_dtype,
    view,
    where,
)
from torch._inductor.virtualized import V, ops

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.dtypes import LOW_PRECISION, compute_dtype
from torchvk_compile.lowering.masks import MASKS, put_under_mask
from torchvk_compile.lowering.ordered_scatter import scatter_in_order

Index = Sequence[Any]
Loader = Callable[[Index], Any]

_ATOMIC_MODES = {
    "sum": "atomic_add",
    "prod": "atomic_mul",
    "amax": "atomic_max",
    "amin": "atomic_min",
}
"""How `SlangKernel.store` combines a value with what is in memory."""


@dataclasses.dataclass(frozen=True)
class Writes:
    """Values on their way to places of a tensor.

    Attributes:
        ranges: sizes of the iteration over the values.
        place: from an iteration index to the index of the element written.
        value: from an iteration index to the value, in the written tensor's dtype.
    """

    ranges: Sequence[sympy.Expr]
    place: Callable[[Index], Index]
    value: Loader

    def carrying(self, value: Loader) -> Writes:
        """Other values to the same places."""
        return dataclasses.replace(self, value=value)


def scatter_to(
    target: ir.TensorBox, writes: Writes, reduce: str | None, *, include_self: bool = True
) -> ir.TensorBox:
    """`target` with `writes` carried out; `target` itself is not changed.

    Args:
        reduce: how values that meet combine: sum, prod, mean, amax, amin; None: one of them stays.
        include_self: whether the element that was there takes part.
    """
    dtype = target.get_dtype()
    if reduce == "mean":
        return _mean(target, writes, include_self)
    register = _accumulator(dtype, reduce)
    if register != dtype:
        own = writes.value
        writes = writes.carrying(lambda index: ops.to_dtype(own(index), register, src_dtype=dtype))
        target = to_dtype(target, register)
    if reduce is not None and not include_self:
        neutral = neutral_element(reduce, register)
        target = _scatter(
            target, writes.carrying(lambda index: ops.constant(neutral, register)), None
        )
    result = _scatter(target, writes, reduce)
    return to_dtype(result, dtype) if register != dtype else result


def scatter_into(
    target: ir.TensorBox, writes: Writes, reduce: str | None, sources: Sequence[Any]
) -> ir.TensorBox:
    """Carry out `writes` on `target` itself.

    Args:
        sources: the tensors that `writes` reads. One that reads `target` makes a copy of it necessary.
    """
    name = ir.try_get_name(target)
    reads_target = any(name is None or name in x.get_read_names() for x in sources if x is not None)
    direct = _accumulator(
        target.get_dtype(), reduce
    ) == target.get_dtype() and not _must_be_ordered(target, reduce)
    if direct and not reads_target:
        return _store_all(target, writes, _ATOMIC_MODES[reduce] if reduce is not None else None)
    return mutate_to(target, scatter_to(target, writes, reduce))


def neutral_element(reduce: str, dtype: torch.dtype) -> Any:
    """The number that changes nothing in a reduction."""
    if reduce in ("sum", "prod"):
        number = 0 if reduce == "sum" else 1
        return bool(number) if dtype is torch.bool else number
    if dtype is torch.bool:
        return reduce == "amin"
    if dtype.is_floating_point:
        return -torch.inf if reduce == "amax" else torch.inf
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _accumulator(dtype: torch.dtype, reduce: str | None) -> torch.dtype:
    if dtype in LOW_PRECISION and reduce in ("sum", "prod"):
        return torch.float32
    return dtype


def _scatter(target: ir.TensorBox, writes: Writes, reduce: str | None) -> ir.TensorBox:
    if _must_be_ordered(target, reduce):
        return scatter_in_order(target, writes.ranges, writes.place, writes.value, reduce)
    return _store_all(clone(target), writes, _ATOMIC_MODES[reduce] if reduce is not None else None)


def _must_be_ordered(target: ir.TensorBox, reduce: str | None) -> bool:
    """Whether atomics will not do: their order would show in the result, or the device has none of this width."""
    dtype = target.get_dtype()
    device = target.get_device()
    assert device is not None
    wide = dtype.itemsize == 8 and reduce is not None
    if wide and not profile_of(device.index or 0).int64_atomics:
        return True
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return reduce is None or (dtype.is_floating_point and reduce in ("sum", "prod"))


def _store_all(target: ir.TensorBox, writes: Writes, mode: str | None) -> ir.TensorBox:
    """Carry out the writes on `target`'s own memory."""
    target.realize()
    device = target.get_device()
    assert device is not None
    node = ir.Scatter(
        device=device,
        dtype=target.get_dtype(),
        inner_fn=writes.value,
        ranges=list(writes.ranges),
        output_indexer=writes.place,
        scatter_mode=mode,  # type: ignore[arg-type]
    )
    layout = ir.MutationLayoutSHOULDREMOVE(_box_of_its_own(target))
    buffer = ir.ComputedBuffer(name=None, layout=layout, data=node)
    buffer.name = V.graph.register_buffer(buffer)
    V.graph.register_operation(buffer)
    return target


def _box_of_its_own(target: ir.TensorBox) -> ir.TensorBox:
    """`target`'s memory as it is now: a later `mutate_to` may let `target` itself stand for other memory."""
    storage = target.data
    return (
        ir.TensorBox(ir.StorageBox(storage.data)) if isinstance(storage, ir.StorageBox) else target
    )


def _mean(target: ir.TensorBox, writes: Writes, include_self: bool) -> ir.TensorBox:
    dtype = target.get_dtype()
    register = compute_dtype(dtype)
    own = writes.value
    total = scatter_to(
        to_dtype(target, register),
        writes.carrying(lambda index: ops.to_dtype(own(index), register, src_dtype=dtype)),
        "sum",
        include_self=include_self,
    )
    ones = full_like(target, int(include_self), dtype=torch.int32)
    count = _scatter(ones, writes.carrying(lambda index: ops.constant(1, torch.int32)), "sum")
    load_total, load_count = total.make_loader(), count.make_loader()

    def divide(index: Index) -> Any:
        # Where nothing arrived the count is 0 and the old value stays.
        number = ops.maximum(load_count(index), ops.constant(1, torch.int32))
        number = ops.to_dtype(number, register, src_dtype=torch.int32)
        if register.is_floating_point:
            mean = ops.truediv(load_total(index), number)
            return ops.to_dtype(mean, dtype, src_dtype=register) if dtype != register else mean
        return ops.floordiv(load_total(index), number)

    return _pointwise(target, dtype, divide)


def _pointwise(like: ir.TensorBox, dtype: torch.dtype, inner: Loader) -> ir.TensorBox:
    return ir.Pointwise.create(
        device=like.get_device(), dtype=dtype, inner_fn=inner, ranges=list(like.get_size())
    )


# scatter along one dimension ---------------------------------------------------------------------------------


def scatter_along(
    x: ir.TensorBox,
    dim: int,
    index: ir.TensorBox,
    src: Any,
    reduce: str | None,
    *,
    include_self: bool = True,
) -> ir.TensorBox:
    """``x`` with ``x[.., index[i], ..] = src[i]`` (or combined with it) for every element of `index`.

    Args:
        index: of x's rank, not negative, with no more elements than `src` in any dimension.
        src: a tensor, or a number.
    """
    if not x.get_size():
        return view(
            scatter_along(
                view(x, [1]),
                0,
                _at_least_1d(index),
                _at_least_1d(src),
                reduce,
                include_self=include_self,
            ),
            [],
        )
    index, src = _at_least_1d(index), _at_least_1d(src)
    size, dtype = x.get_size(), x.get_dtype()
    dim = dim % len(size)
    load_index = index.make_loader()
    load_source = src.make_loader() if isinstance(src, ir.TensorBox) else None

    def place(at: Index) -> Index:
        there = list(at)
        there[dim] = ops.indirect_indexing(load_index(at), size[dim], wrap_neg=False)
        return there

    def value(at: Index) -> Any:
        return ops.constant(src, dtype) if load_source is None else load_source(at)

    return scatter_to(x, Writes(index.get_size(), place, value), reduce, include_self=include_self)


def _at_least_1d(x: Any) -> Any:
    return view(x, [1]) if isinstance(x, ir.TensorBox) and not x.get_size() else x


_NAMES = {None: None, "add": "sum", "multiply": "prod"}


def _scatter_op(
    x: Any, dim: int, index: Any, src: Any, *, reduce: str | None = None
) -> ir.TensorBox:
    return scatter_along(x, dim, index, src, _NAMES[reduce])


def _scatter_add(x: Any, dim: int, index: Any, src: Any) -> ir.TensorBox:
    return scatter_along(x, dim, index, src, "sum")


def _scatter_reduce(
    x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> ir.TensorBox:
    return scatter_along(x, dim, index, src, reduce, include_self=include_self)


# index_add, index_copy, index_reduce -------------------------------------------------------------------------


def index_along(
    x: ir.TensorBox,
    dim: int,
    index: ir.TensorBox,
    src: ir.TensorBox,
    reduce: str | None,
    *,
    alpha: Any = 1,
    include_self: bool = True,
) -> ir.TensorBox:
    """``x`` with slice ``index[i]`` along `dim` combined with ``alpha`` times slice i of `src`."""
    if not x.get_size():
        return view(
            index_along(
                view(x, [1]),
                0,
                index,
                _at_least_1d(src),
                reduce,
                alpha=alpha,
                include_self=include_self,
            ),
            [],
        )
    index, src = _at_least_1d(index), _at_least_1d(src)
    size, dtype = x.get_size(), x.get_dtype()
    dim = dim % len(size)
    load_index, load_source = index.make_loader(), src.make_loader()

    def place(at: Index) -> Index:
        there = list(at)
        there[dim] = ops.indirect_indexing(load_index([at[dim]]), size[dim], wrap_neg=False)
        return there

    def value(at: Index) -> Any:
        own = load_source(at)
        return own if alpha == 1 else ops.mul(own, _constant(alpha, dtype))

    return scatter_to(x, Writes(src.get_size(), place, value), reduce, include_self=include_self)


def _constant(number: Any, dtype: torch.dtype) -> Any:
    if isinstance(number, sympy.Expr):
        return ops.index_expr(number, dtype)
    return ops.constant(number, dtype)


def _index_add(x: Any, dim: int, index: Any, src: Any, *, alpha: Any = 1) -> ir.TensorBox:
    return index_along(x, dim, index, src, "sum", alpha=alpha)


def _index_copy(x: Any, dim: int, index: Any, src: Any) -> ir.TensorBox:
    return index_along(x, dim, index, src, None)


def _index_reduce(
    x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> ir.TensorBox:
    return index_along(x, dim, index, src, reduce, include_self=include_self)


# index_put ---------------------------------------------------------------------------------------------------


def _index_writes(
    x: ir.TensorBox, indices: Sequence[ir.TensorBox | None], values: ir.TensorBox, check: bool
) -> Writes:
    """The writes of ``x[indices] = values``."""
    size = x.get_size()
    given, positions = check_and_broadcast_indices(indices, x.get_device())
    ranges, place = index_output_size_and_inner_fn(
        size,
        given,
        positions,
        list(given[positions[0]].get_size()),
        [None if i is None else i.make_loader() for i in given],
        [size[i] for i in range(len(given))],
        None,
        check=check,
    )
    return Writes(ranges, place, expand(values, ranges).make_loader())


def index_put(
    x: ir.TensorBox,
    indices: Sequence[ir.TensorBox | None],
    values: ir.TensorBox,
    accumulate: bool = False,
    *,
    check: bool = True,
    in_place: bool = False,
) -> ir.TensorBox:
    """``x`` with ``x[indices] = values``, or ``+= values`` with every duplicate counted.

    Args:
        indices: integer tensors, masks or None, as in Python's subscript; negative ones count from the end.
        check: report indices out of range.
        in_place: write to `x` itself.
    """
    values = to_dtype(values, x.get_dtype())
    if any(i is not None and i.get_dtype() in MASKS for i in indices):
        result = put_under_mask(x, indices, values, accumulate)
        return mutate_to(x, result) if in_place else result
    target = x if x.get_size() else view(x, [1])
    writes = _index_writes(target, indices, values, check)
    reduce = "sum" if accumulate else None
    if in_place:
        scatter_into(target, writes, reduce, [values, *indices])
        return x
    result = scatter_to(target, writes, reduce)
    return result if x.get_size() else view(result, [])


def _masked_index_put_accumulate(
    x: ir.TensorBox, mask: ir.TensorBox, indices: Sequence[Any], values: ir.TensorBox
) -> ir.TensorBox:
    # Adding nothing is skipped, so that masked values cost no atomic operation.
    size = x.get_size()
    inside = [None if i is None else clamp(i, -size[d], size[d] - 1) for d, i in enumerate(indices)]
    return index_put(x, inside, where(mask, values, 0), True, check=False)


def register_scatters() -> None:
    """Route the scatters of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    aten = torch.ops.aten
    functional: dict[Any, Callable[..., ir.TensorBox]] = {
        aten.scatter_add.default: _scatter_add,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.index_add.default: _index_add,
        aten.index_copy.default: _index_copy,
        aten.index_reduce.default: _index_reduce,
    }
    for overload in ("src", "value", "reduce", "value_reduce"):
        functional[getattr(aten.scatter, overload)] = _scatter_op
    for op, lowering in functional.items():
        route(op, lowering)
        inplace = getattr(aten, f"{op._schema.name.removeprefix('aten::')}_")
        route(getattr(inplace, op._overloadname), in_place(lowering))
    route(aten.index_put.default, index_put)
    route(aten.index_put_.default, functools.partial(index_put, in_place=True))
    route(aten._unsafe_index_put.default, functools.partial(index_put, check=False))
    route(
        torch.ops.prims._unsafe_index_put_.default,
        functools.partial(index_put, check=False, in_place=True),
    )
    route(aten._unsafe_masked_index_put_accumulate.default, _masked_index_put_accumulate)


def in_place(lowering: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """The lowering of an operator that overwrites its first argument, from that of its functional form."""

    def write(x: ir.TensorBox, *args: Any, **kwargs: Any) -> ir.TensorBox:
        return mutate_to(x, lowering(x, *args, **kwargs))

    return write
