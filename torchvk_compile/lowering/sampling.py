"""Random orders, choices and counts: randperm, multinomial, poisson, binomial.

In: ATen sampling operators of vk tensors. Out: random keys that are sorted, a search in running sums, or one pointwise
node. Forbidden: drawing on the host; the number of choices times the number of samples as a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import broadcast_tensors, lowerings, to_dtype
from torch._inductor.virtualized import ops

from torchvk_compile.codegen.dtypes import compute_dtype
from torchvk_compile.codegen.overrides import BINOMIAL, POISSON
from torchvk_compile.errors import DtypeMismatchError
from torchvk_compile.lowering.scan import running_sum
from torchvk_compile.lowering.sort import order_rows, ordered

Index = Sequence[Any]

_aten = torch.ops.aten

_KEY_RANGE = 1 << 62
"""Random sort keys are below this: two of n are equal with probability n * n / 2 ** 63."""


def _seeded(device: torch.device) -> Any:
    """A new seed per run of the graph, as a function of nothing in `ops`."""
    seeds = ir.RandomSeeds(1, device)
    name = seeds.get_name()
    return lambda: ops.load_seed(name, 0)


def _linear(index: Index, size: Sequence[sympy.Expr]) -> Any:
    offset = sympy.Integer(0)
    for i, extent in zip(index, size, strict=True):
        offset = offset * extent + i
    return ops.index_expr(offset, torch.int64)


def _uniform(device: torch.device, size: Sequence[sympy.Expr]) -> ir.TensorBox:
    """Numbers in [0, 1), float32."""
    seed = _seeded(device)
    node = ir.Pointwise.create(
        device=device,
        dtype=torch.float32,
        inner_fn=lambda index: ops.rand(seed(), _linear(index, size)),
        ranges=list(size),
    )
    node.realize()
    return node


def _randperm(
    n: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> ir.TensorBox:
    device = torch.device(device)
    seed = _seeded(device)
    size = [sympy.sympify(n)]

    def key(index: Index) -> Any:
        low, high = ops.constant(0, torch.int64), ops.constant(_KEY_RANGE, torch.int64)
        return ops.randint64(seed(), _linear(index, size), low, high)

    keys = ir.Pointwise.create(device=device, dtype=torch.int64, inner_fn=key, ranges=size)
    keys.realize()
    return to_dtype(order_rows(keys), dtype or torch.int64)


def _multinomial(
    weights: Any, num_samples: Any, replacement: bool = False, generator: None = None
) -> ir.TensorBox:
    register = compute_dtype(weights.get_dtype())
    weights = to_dtype(weights, register)
    *rows, choices = weights.get_size()
    _check_weights(weights)
    if replacement:
        return _with_replacement(weights, [*rows, sympy.sympify(num_samples)], choices)
    # The largest ratios of weight to exponential number are a weighted sample without replacement
    # (Efraimidis, Spirakis 2006).
    load_weight = weights.make_loader()
    load_uniform = _uniform(weights.get_device(), weights.get_size()).make_loader()

    def ratio(index: Index) -> Any:
        number = ops.to_dtype(load_uniform(index), register)
        waiting = ops.neg(ops.log1p(ops.neg(number)))
        # A waiting time of 0 would make every weight infinite.
        waiting = ops.maximum(waiting, ops.constant(torch.finfo(torch.float32).eps / 2, register))
        return ops.truediv(load_weight(index), waiting)

    ratios = ir.Pointwise.create(
        device=weights.get_device(),
        dtype=register,
        inner_fn=ratio,
        ranges=list(weights.get_size()),
    )
    return ordered(ratios, -1, descending=True).take(num_samples)[1]


def _with_replacement(
    weights: ir.TensorBox, size: Sequence[sympy.Expr], choices: sympy.Expr
) -> ir.TensorBox:
    """A uniform number times the total falls into each choice's share of the running sums."""
    device, dtype = weights.get_device(), weights.get_dtype()
    sums = running_sum(weights, len(size) - 1)
    sums.realize()
    load_sum, load_uniform = sums.make_loader(), _uniform(device, size).make_loader()

    def place(index: Index) -> Any:
        total = load_sum([*index[:-1], choices - 1])
        point = ops.mul(ops.to_dtype(load_uniform(index), dtype), total)
        # Rounding must not reach the total: no choice ends behind it.
        below = ops.nextafter(total, ops.constant(0.0, dtype))
        return ops.minimum(point, below)

    points = ir.Pointwise.create(device=device, dtype=dtype, inner_fn=place, ranges=list(size))
    return lowerings[_aten.searchsorted.Tensor](sums, points, right=True)


def _check_weights(weights: ir.TensorBox) -> None:
    """Report weights that are no distribution when the kernel runs, as torch.multinomial does."""
    load, dtype = weights.make_loader(), weights.get_dtype()

    def valid(index: Index) -> Any:
        value = load(index)
        odd = ops.logical_or(ops.isnan(value), ops.isinf(value))
        negative = ops.lt(value, ops.constant(0.0, dtype))
        return ops.logical_not(ops.logical_or(odd, negative))

    checked = ir.Pointwise.create(
        device=weights.get_device(),
        dtype=torch.bool,
        inner_fn=valid,
        ranges=list(weights.get_size()),
    )
    lowerings[_aten._assert_async.msg](
        checked, "probability tensor contains either `inf`, `nan` or element < 0"
    )
    total = lowerings[_aten.amax.default](weights, [-1])
    positive = lowerings[_aten.gt.Scalar](total, 0)
    lowerings[_aten._assert_async.msg](
        positive, "invalid multinomial distribution (sum of probabilities <= 0)"
    )


def _poisson(rate: ir.TensorBox, generator: None = None) -> ir.TensorBox:
    """Whole numbers in the dtype of `rate`, drawn in float32."""
    valid = lowerings[_aten.ge.Scalar](rate, 0)
    message = "invalid Poisson rate, expected rate to be non-negative"
    lowerings[_aten._assert_async.msg](valid, message)
    return _counts(POISSON, rate)


def _binomial(
    count: ir.TensorBox, probability: ir.TensorBox, generator: None = None
) -> ir.TensorBox:
    """Whole numbers in the dtype of both, drawn in float32."""
    dtypes = count.get_dtype(), probability.get_dtype()
    if dtypes[0] != dtypes[1]:
        raise DtypeMismatchError(
            f"aten.binomial: expected count and prob of the same dtype, but got {dtypes[0]} and {dtypes[1]}"
        )
    return _counts(BINOMIAL, *broadcast_tensors(count, probability))


def _counts(distribution: str, *parameters: ir.TensorBox) -> ir.TensorBox:
    first = parameters[0]
    device, dtype, size = first.get_device(), first.get_dtype(), list(first.get_size())
    seed = _seeded(device)
    loaders = [to_dtype(parameter, torch.float32).make_loader() for parameter in parameters]

    def draw(index: Index) -> Any:
        own = [load(index) for load in loaders]
        drawn = ops.inline_asm_elementwise(
            seed(), _linear(index, size), *own, asm=distribution, dtype=torch.float32
        )
        return ops.to_dtype(drawn, dtype)

    node = ir.Pointwise.create(device=device, dtype=dtype, inner_fn=draw, ranges=size)
    node.realize()
    return node


def register_sampling() -> None:
    """Route the sampling operators of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    route(_aten.randperm.default, _randperm)
    route(_aten.multinomial.default, _multinomial)
    route(_aten.poisson.default, _poisson)
    route(_aten.binomial.default, _binomial)
