"""Complex tensors moved, made, converted and compared: operators that compute nothing with the numbers.

In: ATen operators on complex tensors. Out: rules in `complex_table`. Forbidden: arithmetic on complex numbers.

Most of them do to a complex tensor what they do to its real and its imaginary part, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchvk_compile.lowering.complex_table import (
    COMPLEX_DTYPES,
    REAL_DTYPES,
    Pair,
    elementwise,
    functional_overloads,
    is_complex,
    join,
    parts,
    real_dtype,
    rule,
)

_aten = torch.ops.aten

_BY_PARTS = """
    _reshape_alias _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view alias
    as_strided_scatter cat clone col2im constant_pad_nd
    cumsum detach diag_embed diagonal diagonal_backward diagonal_copy diagonal_scatter embedding
    embedding_dense_backward expand expand_copy fill flip gather im2col index_add index_copy index_fill index_put
    index_select lift_fresh lift_fresh_copy masked_fill masked_scatter masked_scatter_backward mean neg permute
    permute_copy positive put reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward
    reflection_pad3d reflection_pad3d_backward repeat replication_pad1d replication_pad1d_backward replication_pad2d
    replication_pad2d_backward replication_pad3d replication_pad3d_backward roll rot90 scatter scatter_add select
    select_backward select_copy select_scatter slice slice_backward slice_copy slice_scatter split split_copy
    split_with_sizes split_with_sizes_copy squeeze squeeze_copy stack sum t t_copy take trace transpose transpose_copy
    tril triu unbind unbind_copy unfold unfold_backward unfold_copy unsqueeze unsqueeze_copy view.default view_copy zero
"""
"""Operators that treat both parts alike; what they take besides data are positions, masks and sizes."""

_FACTORIES = """
    empty empty_like empty_permuted empty_strided full full_like new_empty new_empty_strided new_full new_ones new_zeros
    ones ones_like scalar_tensor zeros zeros_like
"""

_ELEMENTS = ("value", "fill_value", "fill", "s")
"""Names of number arguments that become elements of the result."""


def _overloads(names: str) -> list[torch._ops.OpOverload]:
    found: list[torch._ops.OpOverload] = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        operator = getattr(_aten, packet)
        chosen = getattr(operator, overload) if overload else operator
        found.extend(functional_overloads(chosen))
    return found


def _by_parts(op: torch._ops.OpOverload) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]

    def apply(*args: Any, **kwargs: Any) -> Any:
        wanted = kwargs.get("dtype")
        data = [t for t in pytree.tree_leaves((args, kwargs)) if _is_data(t)]
        dtype = real_dtype(*data) if wanted is None else REAL_DTYPES[wanted]
        results = []
        for part in (0, 1):
            of = _part_of_arguments(part, dtype)
            own = {name: of(name, value) for name, value in kwargs.items()}
            if wanted is not None:
                own["dtype"] = dtype
            own_args = [of(name, value) for name, value in zip(names, args, strict=False)]
            results.append(op(*own_args, **own))
        real, spec = pytree.tree_flatten(results[0])
        imag = pytree.tree_leaves(results[1])
        return pytree.tree_unflatten([join(pair) for pair in zip(real, imag, strict=True)], spec)

    return apply


def _is_data(value: Any) -> bool:
    return is_complex(value) or (isinstance(value, torch.Tensor) and value.is_floating_point())


def _part_of_arguments(part: int, dtype: torch.dtype) -> Callable[[str, Any], Any]:
    """From an argument and its name to what the operator takes for one of the parts."""

    def convert(name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [convert(name, element) for element in value]
        if isinstance(value, torch.Tensor):
            # `tensors` of aten.cat may be integers; elsewhere integers are positions.
            if not (_is_data(value) or name in ("tensors", "value")):
                return value
            own = parts(value, dtype)[part]
            return own if isinstance(own, torch.Tensor) else torch.zeros_like(value, dtype=dtype)
        if name in _ELEMENTS and isinstance(value, (bool, int, float, complex)):
            return parts(value)[part]
        return value

    return convert


def _factory(op: torch._ops.OpOverload) -> Callable[..., Any]:
    by_parts = _by_parts(op)
    names = [argument.name for argument in op._schema.arguments]
    ones = "ones" in op._schema.name

    def apply(*args: Any, **kwargs: Any) -> Any:
        wanted = kwargs.get("dtype")
        given = dict(zip(names, args, strict=False)) | kwargs
        like = next((v for v in given.values() if isinstance(v, torch.Tensor)), None)
        if wanted is None and like is None:
            wanted = COMPLEX_DTYPES[torch.get_default_dtype()]  # a complex fill value decides
        if wanted is not None and not wanted.is_complex:
            return op(*(parts(a)[0] if is_complex(a) else a for a in args), **kwargs)
        if ones:
            kwargs["dtype"] = REAL_DTYPES[wanted if wanted is not None else like.dtype]  # type: ignore[union-attr]
            real = op(*(parts(a)[0] if is_complex(a) else a for a in args), **kwargs)
            return join((real, 0.0))
        if wanted is not None:
            kwargs["dtype"] = wanted
            args = tuple(_as_complex(a, wanted) if isinstance(a, torch.Tensor) else a for a in args)
        return by_parts(*args, **kwargs)

    return apply


def _as_complex(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return join(parts(value, REAL_DTYPES[dtype]))


for _op in _overloads(_BY_PARTS):
    rule(_op)(_by_parts(_op))
for _op in _overloads(_FACTORIES):
    rule(_op)(_factory(_op))


# Views of memory -----------------------------------------------------------------------------------------------------


@rule(_aten.as_strided.default, _aten.as_strided_copy.default)
def as_strided(
    x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> torch.Tensor:
    """The same elements in memory, counted in real numbers."""
    numbers = torch.view_as_real(x)
    doubled = [2 * step for step in stride]
    return torch.view_as_complex(
        torch.as_strided(numbers, [*size, 2], [*doubled, 1], None if offset is None else 2 * offset)
    )


@rule(_aten.view.dtype)
def view_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Memory read as another dtype: both sides as the numbers that the pairs consist of."""
    if x.dtype == dtype:
        return x
    numbers = torch.view_as_real(x).flatten(-2) if x.dtype.is_complex else x
    part = REAL_DTYPES.get(dtype, dtype)
    if numbers.dtype != part:
        numbers = numbers.view(part)
    if not dtype.is_complex:
        return numbers
    return torch.view_as_complex(numbers.unflatten(-1, (-1, 2)))


@rule(_aten._conj.default, _aten._conj_physical.default, _aten.conj_physical.default)
def conjugate(x: torch.Tensor) -> torch.Tensor:
    """Conjugation, carried out: graphs know the value of a lazily conjugated tensor only."""
    if not x.dtype.is_complex:
        return x
    real, imag = parts(x)
    return join((real, -imag))


@rule(_aten._neg_view.default)
def negated_view(x: torch.Tensor) -> torch.Tensor:
    """Negation, carried out."""
    return torch.neg(x)


@rule(_aten.resolve_conj.default, _aten.resolve_neg.default, _aten.lift.default)
def as_it_is(x: torch.Tensor) -> torch.Tensor:
    """Nothing is lazy inside a graph."""
    return x


# Conversions ---------------------------------------------------------------------------------------------------------


@rule(_aten._to_copy.default)
def to_copy(x: torch.Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """Another dtype or device; the imaginary part is dropped or starts as 0."""
    dtype = x.dtype if dtype is None else dtype
    options = {k: v for k, v in options.items() if k != "memory_format" and v is not None}
    if x.dtype.is_complex and dtype.is_complex:
        numbers = torch.view_as_real(x)
        return torch.view_as_complex(
            _aten._to_copy.default(numbers, dtype=REAL_DTYPES[dtype], **options)
        )
    if dtype.is_complex:
        return join((_aten._to_copy.default(x, dtype=REAL_DTYPES[dtype], **options), 0.0))
    value = is_nonzero(parts(x)) if dtype == torch.bool else parts(x)[0]
    return _aten._to_copy.default(value, dtype=dtype, **options)


@rule(torch.ops.prims.convert_element_type.default)
def convert_element_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`to_copy` as torch's own decompositions write it."""
    return to_copy(x, dtype=dtype)


@rule(_aten.copy.default)
def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """The source with the target's shape and dtype."""
    if source.dtype != target.dtype:
        source = to_copy(source, dtype=target.dtype)
    return source.expand(target.shape).clone()


@rule(_aten.copy_.default)
def copy_into(
    target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """A write to an argument of the graph, which functional graphs end with."""
    if not target.dtype.is_complex:
        return target.copy_(to_copy(source, dtype=target.dtype))
    dtype = REAL_DTYPES[target.dtype]
    source = join(parts(source, dtype)) if not source.dtype.is_complex else source
    torch.view_as_real(target).copy_(torch.view_as_real(source))
    return target


@rule(_aten.complex.default)
def complex_of_parts(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    """`torch.complex`."""
    return join((real, imag))


@rule(_aten.polar.default)
def polar(length: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """`torch.polar`."""
    return join((length * torch.cos(angle), length * torch.sin(angle)))


# Random numbers ------------------------------------------------------------------------------------------------------


def _random(op: torch._ops.OpOverload, scale: float | None) -> Callable[..., torch.Tensor]:
    def apply(first: Any, *, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
        like = isinstance(first, torch.Tensor)
        dtype = first.dtype if dtype is None and like else dtype
        assert dtype is not None
        if not dtype.is_complex:
            return op(parts(first)[0], dtype=dtype, **options)
        if like:
            options = {"device": first.device} | {
                k: v for k, v in options.items() if k != "memory_format"
            }
        size = [*(first.shape if like else first), 2]
        maker = torch.randn if scale is not None else torch.rand
        numbers = maker(size, dtype=REAL_DTYPES[dtype], device=options.get("device"))
        return torch.view_as_complex(numbers if scale is None else numbers * scale)

    return apply


_HALF_VARIANCE = 0.5**0.5
"""A complex normal number has variance 1 in all, so 1/2 in each part."""

for _op, _scale in (
    (_aten.rand.default, None),
    (_aten.rand_like.default, None),
    (_aten.randn.default, _HALF_VARIANCE),
    (_aten.randn_like.default, _HALF_VARIANCE),
):
    rule(_op)(_random(_op, _scale))


# Choices and comparisons ---------------------------------------------------------------------------------------------


@rule(_aten.where.self)
def where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`torch.where` of both parts."""
    dtype = real_dtype(x, y)
    chosen = [
        torch.where(condition, a, b) for a, b in zip(parts(x, dtype), parts(y, dtype), strict=True)
    ]
    return join((chosen[0].to(dtype), chosen[1].to(dtype)))


@rule(_aten.index.Tensor, _aten._unsafe_index.Tensor)
def index(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Positions of a mask are looked for once, not once for each part."""
    positions: list[torch.Tensor | None] = []
    for given in indices:
        if given is not None and given.dtype in (torch.bool, torch.uint8):
            positions.extend(torch.nonzero(given).unbind(1))
        else:
            positions.append(given)
    real, imag = (_aten.index.Tensor(part, positions) for part in parts(x))
    return join((real, imag))


@rule(_aten.masked_select.default)
def masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`torch.masked_select`."""
    x, mask = torch.broadcast_tensors(x, mask)
    return index(x, [mask])


def is_nonzero(x: Pair) -> torch.Tensor:
    """Where a complex number counts as true."""
    real, imag = x
    return (real != 0) if not isinstance(imag, torch.Tensor) else (real != 0) | (imag != 0)


def _of_truth(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """An operator that asks of its tensors only whether their elements are zero."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        return op(*(is_nonzero(parts(a)) if is_complex(a) else a for a in args), **kwargs)

    return apply


for _op in _overloads("logical_and logical_or logical_xor logical_not any all nonzero"):
    rule(_op)(_of_truth(_op))


@rule(_aten.count_nonzero.default, _aten.count_nonzero.dim_IntList)
def count_nonzero(x: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """`torch.count_nonzero`."""
    nonzero = is_nonzero(parts(x)).to(torch.int64)
    return torch.sum(nonzero) if dim is None else torch.sum(nonzero, dim)


@elementwise(_aten.eq, returns_real=True)
def equal(a: Pair, b: Pair) -> torch.Tensor:
    """Both parts are equal."""
    return torch.eq(a[0], b[0]) & torch.eq(a[1], b[1])


@elementwise(_aten.ne, returns_real=True)
def not_equal(a: Pair, b: Pair) -> torch.Tensor:
    """One of the parts differs."""
    return torch.ne(a[0], b[0]) | torch.ne(a[1], b[1])


@elementwise(_aten.isnan, returns_real=True)
def isnan(x: Pair) -> torch.Tensor:
    """A part is NaN."""
    return torch.isnan(x[0]) | torch.isnan(x[1])


@elementwise(_aten.isinf, returns_real=True)
def isinf(x: Pair) -> torch.Tensor:
    """A part is infinite."""
    return torch.isinf(x[0]) | torch.isinf(x[1])
