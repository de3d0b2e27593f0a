"""aten._trilinear: what nn.Bilinear and its gradients are made of.

In: three tensors and the dimensions to insert and to sum. Out: one reduction over their product.
Forbidden: materialising the product; any change for other devices.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.lowering import lowerings, sum_, to_dtype, unsqueeze

_HALVES = (torch.float16, torch.bfloat16)


def register_trilinear() -> None:
    """Route the operator of vk tensors here."""
    from torchvk_compile.lowering.registry import route

    route(torch.ops.aten._trilinear.default, trilinear)


def trilinear(
    first: Any,
    second: Any,
    third: Any,
    expand_first: Sequence[int],
    expand_second: Sequence[int],
    expand_third: Sequence[int],
    sum_dims: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """Insert dimensions of size one, multiply with broadcasting, sum over `sum_dims`.

    Half precision is multiplied and summed in float32, and rounded once.
    """
    multiply = lowerings[torch.ops.aten.mul.Tensor]
    dtype = first.get_dtype()
    factors = []
    for factor, dims in ((first, expand_first), (second, expand_second), (third, expand_third)):
        if dtype in _HALVES:
            factor = to_dtype(factor, torch.float32)
        for dim in sorted(dims):
            factor = unsqueeze(factor, dim)
        factors.append(factor)
    product = functools.reduce(multiply, factors)
    if sum_dims:
        product = sum_(product, list(sum_dims), dtype=product.get_dtype())
    return to_dtype(product, dtype)
