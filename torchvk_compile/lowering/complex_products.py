"""Products over dimensions: matrix products, running products, convolution.

In: ATen operators on complex tensors. Out: rules in `complex_table`. Forbidden: Inductor's IR, except in the lowering
of the running product.

A matrix product is one real product. The left matrix is read as it lies in memory, rows of 2K numbers; the right one is
written out as 2K rows of 2N numbers, so that each row of the result is N pairs: for every pair (c, d) of the right
matrix there are the two rows (c, d) and (-d, c).
"""

from __future__ import annotations

from typing import Any

import torch

from torchvk_compile.lowering.complex_arithmetic import plus, times
from torchvk_compile.lowering.complex_table import (
    join,
    parts,
    real_dtype,
    rule,
)
from torchvk_compile.lowering.interleave import interleave

_aten = torch.ops.aten


# Matrix products -----------------------------------------------------------------------------------------------------


def _product(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """left @ right for matrices or batches of them."""
    a, b = _pairs(left, dtype), _pairs(right, dtype)
    # [..., K, 2, N, 2]: row (c, d), then row (-d, c).
    turned = torch.stack((-b[..., 1], b[..., 0]), -1)
    rows = torch.stack((b, turned), -3)
    flat = rows.reshape(*b.shape[:-3], 2 * b.shape[-3], 2 * b.shape[-2])
    result = torch.matmul(a.flatten(-2), flat)
    return torch.view_as_complex(result.unflatten(-1, (-1, 2)))


def _pairs(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if x.dtype.is_complex:
        return torch.view_as_real(x).to(dtype)
    return interleave(x.to(dtype), torch.zeros_like(x, dtype=dtype))


@rule(_aten.mm.default, _aten.bmm.default)
def mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Matrix product, or a batch of them."""
    return _product(left, right, real_dtype(left, right))


def _with_bias(bias: torch.Tensor, product: torch.Tensor, beta: Any, alpha: Any) -> torch.Tensor:
    """beta bias + alpha product; with beta = 0 the bias does not count, NaN or not."""
    result = parts(product) if alpha == 1 else times(parts(product), parts(alpha))
    if beta != 0:
        dtype = real_dtype(product)
        whole = parts(bias, dtype)
        result = plus(whole if beta == 1 else times(whole, parts(beta)), result)
    return join(result)


@rule(_aten.addmm.default, _aten.baddbmm.default)
def addmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """beta bias + alpha left @ right."""
    return _with_bias(bias, mm(left, right), beta, alpha)


@rule(_aten.addbmm.default)
def addbmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """beta bias + alpha times the sum of a batch of products."""
    return _with_bias(bias, mm(left, right).sum(0), beta, alpha)


@rule(_aten.mv.default)
def mv(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Matrix times vector."""
    return mm(matrix, vector.unsqueeze(-1)).squeeze(-1)


@rule(_aten.addmv.default)
def addmv(
    bias: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """beta bias + alpha matrix @ vector."""
    return _with_bias(bias, mv(matrix, vector), beta, alpha)


@rule(_aten.addr.default)
def addr(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """beta bias + alpha times the outer product of two vectors."""
    dtype = real_dtype(left, right)
    outer = times(parts(left.unsqueeze(1), dtype), parts(right, dtype))
    return _with_bias(bias, join(outer), beta, alpha)


@rule(_aten.dot.default)
def dot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Sum of products, nothing conjugated."""
    return join(tuple(part.sum() for part in times(parts(left), parts(right))))  # type: ignore[arg-type]


@rule(_aten.vdot.default)
def vdot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Sum of products, the left factors conjugated."""
    real, imag = parts(left)
    return join(tuple(part.sum() for part in times((real, -imag), parts(right))))  # type: ignore[arg-type]


# Products along a dimension ------------------------------------------------------------------------------------------

_library = torch.library.Library("torchvk", "FRAGMENT")
_library.define("running(Tensor real, Tensor imag, int dim, str kind) -> (Tensor, Tensor)")


def _running_empty(
    real: torch.Tensor, imag: torch.Tensor, dim: int, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return real.new_empty(real.shape), imag.new_empty(imag.shape)


_library.impl("running", _running_empty, "Meta")


def _running(x: torch.Tensor, dim: int, kind: str) -> torch.Tensor:
    if x.dim() == 0:
        return x.clone()
    real, imag = parts(x)
    return join(torch.ops.torchvk.running.default(real, imag, dim % x.dim(), kind))


@rule(_aten.cumprod.default)
def cumprod(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Running products along a dimension."""
    return _running(x if dtype is None else x.to(dtype), dim, "product")


@rule(_aten.logcumsumexp.default)
def logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Logarithms of running sums of exponentials."""
    return _running(x, dim, "log_sum")


@rule(_aten.prod.default)
def prod(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Product of all elements."""
    return prod_dim(x.reshape(-1), 0, dtype=dtype)


@rule(_aten.prod.dim_int)
def prod_dim(
    x: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Product along a dimension: the last of the running products."""
    x = x if dtype is None else x.to(dtype)
    if x.dim() == 0:
        return x.clone()
    if x.shape[dim] == 0:
        return torch.ones_like(x.sum(dim, keepdim))
    last = cumprod(x, dim).select(dim, -1)
    return last.unsqueeze(dim) if keepdim else last


Value = tuple[Any, ...]


def _product_of(a: Value, b: Value) -> Value:
    from torch._inductor.virtualized import ops

    return (
        ops.sub(ops.mul(a[0], b[0]), ops.mul(a[1], b[1])),
        ops.add(ops.mul(a[0], b[1]), ops.mul(a[1], b[0])),
    )


def _log_sum_of(a: Value, b: Value) -> Value:
    """ln(e^a + e^b): the one with the larger real part, and log1p of e to the difference."""
    from torch._inductor.virtualized import ops

    first = ops.ge(a[0], b[0])
    large = ops.where(first, a[0], b[0]), ops.where(first, a[1], b[1])
    small = ops.where(first, b[0], a[0]), ops.where(first, b[1], a[1])
    length = ops.exp(ops.sub(small[0], large[0]))
    turn = ops.sub(small[1], large[1])
    real, imag = ops.mul(length, ops.cos(turn)), ops.mul(length, ops.sin(turn))
    one, two, half = (ops.constant(c, torch.float32) for c in (1.0, 2.0, 0.5))
    excess = ops.add(ops.mul(real, ops.add(two, real)), ops.mul(imag, imag))
    sums = (
        ops.add(large[0], ops.mul(half, ops.log1p(excess))),
        ops.add(large[1], ops.atan2(imag, ops.add(one, real))),
    )
    # Equal infinities have no difference; a sum of nothing is nothing.
    nothing = ops.logical_and(ops.eq(small[0], large[0]), ops.isinf(large[0]))
    return tuple(ops.where(nothing, own, s) for own, s in zip(large, sums, strict=True))


def _lower_running(real: Any, imag: Any, dim: int, kind: str) -> Any:
    from torchvk_compile.lowering.scan import scan

    combine = {"product": _product_of, "log_sum": _log_sum_of}[kind]
    dtypes = [real.get_dtype()] * 2
    loaders = [real.make_loader(), imag.make_loader()]
    return scan(real.get_device(), dtypes, loaders, real.get_size(), dim, combine)


def register_running() -> None:
    """Lower running products and sums on vk tensors."""
    from torchvk_compile.lowering.registry import route

    route(torch.ops.torchvk.running.default, _lower_running)
