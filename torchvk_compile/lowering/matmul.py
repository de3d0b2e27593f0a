"""Matrix products: aten.mm, addmm, bmm, baddbmm, addbmm, _int_mm.

In: ATen matrix products of vk tensors. Out: template buffers whose kernels pointwise nodes fuse
into. Forbidden: Slang text; any change for other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import expand, full
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from torchvk_compile import config, torch_compat
from torchvk_compile.codegen.cooperative import CooperativeConfig, fragment_of
from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.dtypes import require_supported
from torchvk_compile.codegen.gemm import GemmKernel
from torchvk_compile.codegen.gemm_config import (
    ROWS,
    GemmConfig,
    RowConfig,
    alternatives,
    choose_config,
    cooperative_tiles,
)
from torchvk_compile.codegen.template_kernel import Epilogue
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.tuning.choice import chosen
from torchvk_compile.tuning.problem import Problem

ACCUMULATORS = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.uint8: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.int32: torch.int32,
    torch.int64: torch.int64,
}
"""What products and convolutions of a dtype are summed in. Narrow integers wrap once, at the end: the same bits."""

_HINT = 512
"""Stands for a size that is known only when the graph runs."""


def register_matmul() -> None:
    """Route the matrix products of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    aten = torch.ops.aten
    for op in (aten.mm, aten.bmm):
        route(op.default, _product)
        route(op.dtype, _product)
    for op in (aten.addmm, aten.baddbmm):
        route(op.default, _sum_with_product)
        route(op.dtype, _sum_with_dtype)
    route(aten.addbmm.default, _sum_of_products)
    route(aten._int_mm.default, _integer_product)


def _product(a: Any, b: Any, out_dtype: torch.dtype | None = None) -> ir.TensorBox:
    return matmul("aten.mm", a, b, out_dtype=out_dtype)


def _integer_product(a: Any, b: Any) -> ir.TensorBox:
    return matmul("aten._int_mm", a, b, out_dtype=torch.int32)


def _sum_with_product(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> ir.TensorBox:
    return matmul("aten.addmm", a, b, bias=bias, beta=beta, alpha=alpha)


def _sum_with_dtype(
    bias: Any, a: Any, b: Any, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1
) -> ir.TensorBox:
    return matmul("aten.addmm", a, b, bias=bias, beta=beta, alpha=alpha, out_dtype=out_dtype)


def _sum_of_products(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> ir.TensorBox:
    return matmul("aten.addbmm", a, b, bias=bias, beta=beta, alpha=alpha, sum_batch=True)


def matmul(
    op: str,
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    alpha: Any = 1,
    beta: Any = 1,
    out_dtype: torch.dtype | None = None,
    sum_batch: bool = False,
) -> ir.TensorBox:
    """``beta * bias + alpha * (a @ b)``, summed in the accumulator's dtype and rounded once.

    Args:
        op: name of the operator, for errors.
        a, b: (M, K) and (K, N), or (B, M, K) and (B, K, N); any strides.
        bias: broadcasts to the output; not read when `beta` is 0.
        alpha, beta: numbers or symbolic numbers.
        out_dtype: of the output; the operands' by default.
        sum_batch: add the products of a batch up; the output is (M, N).

    Raises:
        UnsupportedOperatorError: for a dtype that torch's CPU kernels do not multiply either, or
            that the device lacks.
    """
    a, b = realize_operand(a), realize_operand(b)
    device, dtype = a.get_device(), a.get_dtype()
    profile = profile_of(device.index or 0)
    accumulator = ACCUMULATORS.get(dtype)
    if accumulator is None:
        raise UnsupportedOperatorError(op, dtype=dtype, reason="it multiplies no such matrices")
    for needed in (dtype, accumulator):
        require_supported(needed, profile, op)

    sizevars = V.graph.sizevars
    *batch_a, m, k = a.get_size()
    *batch_b, other_k, n = b.get_size()
    sizevars.check_equals_and_simplify(k, other_k)
    batch = [
        sizevars.check_equals_and_simplify(*pair) for pair in zip(batch_a, batch_b, strict=True)
    ]
    size = [m, n] if sum_batch else [*batch, m, n]
    layout = ir.FixedLayout(device, out_dtype or dtype, size)
    if any(sizevars.statically_known_equals(length, 0) for length in size):
        return full(size, 0, dtype=layout.dtype, device=device)

    load_bias, bias_buffers, bias_is_stored = None, [], True
    if bias is not None and beta != 0:
        bias_is_stored = not _is_computed(bias)
        if bias_is_stored:
            bias = realize_operand(bias)
            bias_buffers, bias = [bias], ir.TensorBox(bias)
        load_bias = expand(bias, size).make_loader()
    epilogue = _scaling(accumulator, alpha, beta, load_bias)

    def hint(size: sympy.Expr) -> int:
        return sizevars.optimization_hint(size, fallback=_HINT)

    sizes = hint(sympy_product(batch)), hint(m), hint(n), hint(k)
    cooperative = cooperative_tiles_for(profile, dtype)
    rows = _templates_are_off() or (not sum_batch and _is_row_of_dot_products(a, b))
    config = chosen(
        ROWS if rows else choose_config(profile, *sizes, accumulator, cooperative),
        lambda: (
            [] if _templates_are_off() else alternatives(profile, *sizes, accumulator, cooperative)
        ),
        lambda: _problem(a, b, bias, beta, alpha, layout.dtype, sum_batch),
    )
    if isinstance(config, RowConfig):
        sums = _dot_products(a, b, [*batch, m, n], accumulator)
        return _finished(_total(sums) if sum_batch else sums, layout, epilogue)
    if config.split_k == 1 and bias_is_stored and not sum_batch:
        return product_buffer(layout, [a, b, *bias_buffers], config, accumulator, epilogue)
    parts = [sympy.Integer(config.split_k)] if config.split_k > 1 else []
    sums_layout = ir.FixedLayout(device, accumulator, [*parts, *batch, m, n])
    sums = product_buffer(sums_layout, [a, b], config, accumulator, None)
    while len(sums.get_size()) > len(size):
        sums = _total(sums)
    return _finished(sums, layout, epilogue)


def cooperative_tiles_for(profile: Any, dtype: torch.dtype) -> list[CooperativeConfig]:
    """What computes products of `dtype` on the device's matrix units, as exactly as the user wants them.

    float32 products are three of bfloat16 where `torch.set_float32_matmul_precision` allows it; "medium", which allows
    one, counts as "high".
    """
    if dtype is not torch.float32:
        return cooperative_tiles(profile, fragment_of(profile, dtype), products=1)
    if not torch_compat.rounds_float32_products():
        return []
    return cooperative_tiles(profile, fragment_of(profile, torch.bfloat16), products=3)


def _problem(
    a: Any, b: Any, bias: Any, beta: Any, alpha: Any, out_dtype: torch.dtype, sum_batch: bool
) -> Problem:
    """The product as a call of one operator."""
    aten = torch.ops.aten
    device, batched = a.get_device(), len(a.get_size()) == 3
    bias = None if beta == 0 else bias
    if bias is not None:
        plain = aten.addbmm if sum_batch else aten.baddbmm if batched else aten.addmm
        operands: tuple[Any, ...] = (bias, a, b)
        scaling = {"beta": beta, "alpha": alpha}
    else:
        plain, operands, scaling = (aten.bmm if batched else aten.mm), (a, b), {}
    if out_dtype is a.get_dtype():
        return Problem.of(plain.default, device, *operands, **scaling)
    if out_dtype is torch.int32:
        return Problem.of(aten._int_mm.default, device, a, b)
    return Problem.of(plain.dtype, device, *operands, out_dtype, **scaling)


def _templates_are_off() -> bool:
    return "gemm_templates" in config.without


def realize_operand(x: Any) -> ir.IRNode:
    """`x` in memory, with fixed strides; a copy only where it is no strided view of a buffer."""
    node = ir.ExternKernel.realize_input(x)
    if isinstance(node, ir.StorageBox):
        node.freeze_layout()
        node = node.data
    if node.get_dtype() != V.graph.get_dtype(node.get_name()):
        # The same memory seen as another dtype: kernel arguments have one type per buffer.
        node = ir.ExternKernel.copy_input(x).data
        node.freeze_layout()
    return node


def _is_computed(x: Any) -> bool:
    """`x` is an expression that no buffer holds yet: it can be evaluated where it is used."""
    while isinstance(x, (ir.MutableBox, ir.BaseView)):
        x = x.data
    return isinstance(x, ir.Pointwise)


def product_buffer(
    layout: ir.FixedLayout,
    inputs: Sequence[ir.IRNode],
    config: GemmConfig,
    accumulator: torch.dtype,
    epilogue: Epilogue | None,
) -> ir.TensorBox:
    """A buffer that a `GemmKernel` fills from the first two inputs."""

    def make_kernel(output: ir.TemplateBuffer, **_: Any) -> tuple[GemmKernel, None]:
        a, b = output.inputs[:2]
        return GemmKernel(output, a, b, config, accumulator, epilogue), None

    return ir.TensorBox.create(ir.TemplateBuffer(layout, inputs, make_kernel))


def _is_row_of_dot_products(a: ir.IRNode, b: ir.IRNode) -> bool:
    """One operand is a vector, and the other's rows, which it meets, are consecutive in memory.

    Such a product reads every element once: a reduction along the rows does that at full bandwidth.
    """
    known = V.graph.sizevars.statically_known_equals
    row = known(a.get_size()[-2], 1) and known(b.get_stride()[-2], 1)
    column = known(b.get_size()[-1], 1) and known(a.get_stride()[-1], 1)
    return row or column


def _dot_products(
    a: ir.IRNode, b: ir.IRNode, size: Sequence[sympy.Expr], accumulator: torch.dtype
) -> ir.TensorBox:
    load_a, load_b = (ir.TensorBox(x).make_loader() for x in (a, b))

    def term(index: Sequence[sympy.Expr], along: Sequence[sympy.Expr]) -> Any:
        *batch, m, n = index
        (k,) = along
        x, y = load_a([*batch, m, k]), load_b([*batch, k, n])
        return ops.mul(ops.to_dtype(x, accumulator), ops.to_dtype(y, accumulator))

    return _sum(a, accumulator, term, size, a.get_size()[-1])


def _total(parts: ir.TensorBox) -> ir.TensorBox:
    """The sum over the first dimension."""
    load = parts.make_loader()
    count, *size = parts.get_size()

    def term(index: Sequence[sympy.Expr], along: Sequence[sympy.Expr]) -> Any:
        return load([*along, *index])

    return _sum(parts, parts.get_dtype(), term, size, count)


def _sum(
    like: ir.IRNode,
    dtype: torch.dtype,
    term: Callable[..., Any],
    size: Sequence[sympy.Expr],
    length: sympy.Expr,
) -> ir.TensorBox:
    sums = ir.Reduction.create(
        device=like.get_device(),
        dst_dtype=dtype,
        src_dtype=dtype,
        inner_fn=term,
        ranges=list(size),
        reduction_ranges=[length],
        reduction_type="sum",
    )
    sums.realize()
    return sums


def _finished(
    sums: ir.TensorBox, layout: ir.FixedLayout, epilogue: Epilogue | None
) -> ir.TensorBox:
    """What a kernel's store step does, as a pointwise node."""
    load, accumulator = sums.make_loader(), sums.get_dtype()

    def finish(index: Sequence[sympy.Expr]) -> Any:
        value = load(index)
        if epilogue is not None:
            value = epilogue(value, index)
        return ops.to_dtype(value, layout.dtype, src_dtype=accumulator)

    return ir.Pointwise.create(
        device=layout.device, dtype=layout.dtype, inner_fn=finish, ranges=list(layout.size)
    )


def _scaling(
    accumulator: torch.dtype, alpha: Any, beta: Any, load_bias: Callable[..., Any] | None
) -> Epilogue | None:
    """``beta * bias + alpha * sum`` in the accumulator's dtype."""
    if load_bias is None and alpha == 1:
        return None

    def scaled(value: Any, factor: Any) -> Any:
        if factor == 1:
            return value
        if isinstance(factor, sympy.Expr):
            return ops.mul(value, ops.index_expr(factor, accumulator))
        return ops.mul(value, ops.constant(factor, accumulator))

    def epilogue(value: Any, indices: Sequence[sympy.Expr]) -> Any:
        value = scaled(value, alpha)
        if load_bias is None:
            return value
        return ops.add(value, scaled(ops.to_dtype(load_bias(indices), accumulator), beta))

    return epilogue
