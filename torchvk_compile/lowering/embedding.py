"""Embeddings: bags of rows (EmbeddingBag) forward and backward, and limiting the norm of rows.

In: ATen embedding operators of vk tensors. Out: a segment kernel for bags, scatters for gradients. Forbidden: Slang
text; atomics in forward passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import full, lowerings, squeeze, sum_, to_dtype, view
from torch._inductor.virtualized import ops

from torchvk_compile.codegen.dtypes import compute_dtype
from torchvk_compile.codegen.segment_reduction import SegmentReduction, reduce_segments
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.scatter import Writes, index_put, scatter_to

Index = Sequence[Any]

_SUM, _MEAN, _MAX = 0, 1, 2
_REDUCTIONS = {
    _SUM: SegmentReduction("sum"),
    _MEAN: SegmentReduction("sum", mean=True),
    _MAX: SegmentReduction("max", initial=-torch.inf),
}

_aten = torch.ops.aten


def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[ir.TensorBox, ...]:
    """The bags, and for the backward pass: each row's bag, the bags' sizes, the rows of the maxima."""
    entries = offsets.get_size()[0]
    bags = entries - 1 if include_last_offset else entries
    starts = view(offsets, [1, entries])

    def reduced(reduction: SegmentReduction, dtype: torch.dtype | None = None) -> ir.TensorBox:
        result = reduce_segments(
            reduction,
            weight,
            starts,
            segments=bags,
            indices=indices,
            weights=per_sample_weights if reduction.reduce == "sum" else None,
            padding=padding_idx,
            result_dtype=dtype,
        )
        return squeeze(result, 0)

    own = indices.get_dtype()
    output = reduced(_REDUCTIONS[mode])
    sizes = view(reduced(SegmentReduction("count"), own), [bags])
    if include_last_offset:
        sizes = lowerings[_aten.constant_pad_nd](sizes, [0, 1], 0)
    if mode == _MAX:
        largest = reduced(SegmentReduction("argmax", initial=-torch.inf), own)
    else:
        largest = full([0], 0, dtype=own, device=weight.get_device())
    return output, _bag_of_rows(offsets, indices), sizes, largest


def _bag_of_rows(offsets: ir.TensorBox, indices: ir.TensorBox) -> ir.TensorBox:
    """For every row the bag it belongs to."""
    device = indices.get_device()
    rows = lowerings[torch.ops.prims.iota](
        indices.get_size()[0],
        start=0,
        step=1,
        dtype=offsets.get_dtype(),
        device=device,
        requires_grad=False,
    )
    after = lowerings[_aten.searchsorted.Tensor](offsets, rows, right=True)
    return to_dtype(lowerings[_aten.sub.Tensor](after, 1), indices.get_dtype())


def _embedding_bag_backward(
    grad: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> ir.TensorBox:
    if sparse:
        raise UnsupportedOperatorError(
            "aten._embedding_bag_backward", reason="gradients are dense on this device"
        )
    return _embedding_bag_dense_backward(
        grad,
        indices,
        offset2bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


def _embedding_bag_dense_backward(
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> ir.TensorBox:
    dtype, register = grad.get_dtype(), compute_dtype(grad.get_dtype())
    width = grad.get_size()[1]
    target = full([num_weights, width], 0, dtype=register, device=grad.get_device())
    load_grad, load_size = grad.make_loader(), bag_size.make_loader()

    def row(place: Any) -> Any:
        return ops.indirect_indexing(place, num_weights, wrap_neg=False)

    def number(value: Any) -> Any:
        return ops.to_dtype(value, register)

    if mode == _MAX:
        load_largest = maximum_indices.make_loader()

        def from_largest(index: Index) -> Any:
            filled = ops.gt(load_size([index[0]]), ops.constant(0, bag_size.get_dtype()))
            return ops.where(filled, number(load_grad(index)), ops.constant(0, register))

        writes = Writes(
            grad.get_size(), lambda index: [row(load_largest(index)), index[1]], from_largest
        )
        return to_dtype(scatter_to(target, writes, "sum"), dtype)

    load_index, load_bag = indices.make_loader(), offset2bag.make_loader()
    load_weight = per_sample_weights.make_loader() if per_sample_weights is not None else None
    load_frequency = (
        _frequencies(indices, num_weights).make_loader() if scale_grad_by_freq else None
    )

    def from_bag(index: Index) -> Any:
        i, column = index
        place = load_index([i])
        bag = ops.indirect_indexing(
            load_bag([i]), bag_size.get_size()[0], check=False, wrap_neg=False
        )
        value = number(load_grad([bag, column]))
        if mode == _MEAN:
            value = ops.truediv(value, number(load_size([bag])))
        if load_weight is not None:
            value = ops.mul(value, number(load_weight([i])))
        if load_frequency is not None:
            value = ops.truediv(value, number(load_frequency([row(place)])))
        if padding_idx >= 0:
            padding = ops.eq(place, ops.constant(padding_idx, indices.get_dtype()))
            value = ops.where(padding, ops.constant(0, register), value)
        return value

    ranges = [indices.get_size()[0], width]
    writes = Writes(ranges, lambda index: [row(load_index([index[0]])), index[1]], from_bag)
    return to_dtype(scatter_to(target, writes, "sum"), dtype)


def _frequencies(indices: ir.TensorBox, count: sympy.Expr) -> ir.TensorBox:
    """How often each number below `count` occurs."""
    zeros = full([count], 0, dtype=torch.int32, device=indices.get_device())
    load = indices.make_loader()
    writes = Writes(
        indices.get_size(),
        lambda index: [ops.indirect_indexing(load(index), count, wrap_neg=False)],
        lambda index: ops.constant(1, torch.int32),
    )
    return scatter_to(zeros, writes, "sum")


def _per_sample_weights_backward(
    grad: Any,
    weight: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    mode: int,
    padding_idx: int = -1,
) -> ir.TensorBox:
    """The product of each row with the gradient of its bag."""
    dtype, register = grad.get_dtype(), compute_dtype(grad.get_dtype())
    load_grad, load_row = grad.make_loader(), weight.make_loader()
    load_index, load_bag = indices.make_loader(), offset2bag.make_loader()
    bags, rows = grad.get_size()[0], weight.get_size()[0]

    def product(index: Index) -> Any:
        i, column = index
        bag = ops.indirect_indexing(load_bag([i]), bags, check=False, wrap_neg=False)
        place = load_index([i])
        row = ops.indirect_indexing(place, rows, wrap_neg=False)
        value = ops.mul(
            ops.to_dtype(load_grad([bag, column]), register),
            ops.to_dtype(load_row([row, column]), register),
        )
        if padding_idx >= 0:
            padding = ops.eq(place, ops.constant(padding_idx, indices.get_dtype()))
            value = ops.where(padding, ops.constant(0, register), value)
        return value

    products = ir.Pointwise.create(
        device=grad.get_device(),
        dtype=register,
        inner_fn=product,
        ranges=[indices.get_size()[0], grad.get_size()[1]],
    )
    return to_dtype(sum_(products, [1]), dtype)


def _embedding_renorm(weight: Any, indices: Any, max_norm: float, norm_type: float) -> ir.TensorBox:
    """`weight` with the rows that `indices` names scaled down to `max_norm` where they are longer."""
    count = indices.get_numel()
    flat = view(indices, [count])
    rows = to_dtype(
        lowerings[_aten.index.Tensor](weight, [flat]), compute_dtype(weight.get_dtype())
    )
    rows.realize()
    norms = _norms(rows, norm_type)
    load_norm, load_row = norms.make_loader(), rows.make_loader()
    register = rows.get_dtype()

    def limited(index: Index) -> Any:
        norm, own = load_norm([index[0], 0]), load_row(index)
        # The small number is ATen's (aten/src/ATen/native/Embedding.cpp).
        scale = ops.truediv(
            ops.constant(max_norm, register), ops.add(norm, ops.constant(1e-7, register))
        )
        return ops.where(ops.gt(norm, ops.constant(max_norm, register)), ops.mul(own, scale), own)

    scaled = ir.Pointwise.create(
        device=weight.get_device(), dtype=register, inner_fn=limited, ranges=rows.get_size()
    )
    return index_put(weight, [flat], to_dtype(scaled, weight.get_dtype()))


def _norms(rows: ir.TensorBox, norm_type: float) -> ir.TensorBox:
    magnitudes = lowerings[_aten.abs.default](rows)
    if norm_type == torch.inf:
        return lowerings[_aten.amax.default](magnitudes, [1], True)
    if norm_type == 1:
        return sum_(magnitudes, [1], True)
    if norm_type == 2:
        return lowerings[_aten.sqrt.default](
            sum_(lowerings[_aten.mul.Tensor](rows, rows), [1], True)
        )
    powers = lowerings[_aten.pow.Tensor_Scalar](magnitudes, float(norm_type))
    return lowerings[_aten.pow.Tensor_Scalar](sum_(powers, [1], True), 1.0 / norm_type)


def _rows_of(lookup: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    def rows(weight: ir.TensorBox, indices: ir.TensorBox, *flags: Any, **named: Any) -> Any:
        """The rows themselves; all flags are about the gradient."""
        return lookup(weight, indices)

    return rows


def register_embeddings() -> None:
    """Route the embedding operators of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route
    from torchvk_compile.lowering.scatter import in_place

    route(_aten.embedding.default, _rows_of(lowerings[_aten.embedding.default]))
    route(_aten._embedding_bag.default, _embedding_bag)
    route(_aten._embedding_bag_forward_only.default, _embedding_bag)
    route(_aten._embedding_bag_backward.default, _embedding_bag_backward)
    route(_aten._embedding_bag_dense_backward.default, _embedding_bag_dense_backward)
    route(_aten._embedding_bag_per_sample_weights_backward.default, _per_sample_weights_backward)
    route(_aten.embedding_renorm.default, _embedding_renorm)
    route(_aten.embedding_renorm_.default, in_place(_embedding_renorm))
