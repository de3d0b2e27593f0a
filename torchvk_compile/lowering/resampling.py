"""Resampling along each dimension by itself: interpolation and its gradients.

In: ATen operators that Inductor has no loops for. Out: products with matrices of weights. Forbidden: Slang text.

Along one dimension all of these are linear: a matrix, mostly zeros, takes the input to the output, and its transpose
takes the gradient back. The matrix is computed on the device; gradients need no atomics and are the same every time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.windows import accumulator

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Axis:
    """One dimension that is resampled.

    Attributes:
        source, target: extents of input and output.
        scale: their ratio as the caller gave it, or None.
        align: the centres of the corner pixels of input and output coincide.
        dtype, device: of the matrix.
    """

    source: int
    target: int
    scale: float | None
    align: bool
    dtype: torch.dtype
    device: torch.device

    def pixels(self, count: int) -> torch.Tensor:
        """0, 1, 2 …"""
        return torch.arange(count, dtype=self.dtype, device=self.device)

    def ratio(self) -> Any:
        """Pixels of the input for one of the output, without `align`."""
        if self.scale is not None and self.scale > 0:
            return 1 / self.scale
        return _quotient(self.source, self.target, self.dtype, self.device)


Weights = Callable[[Axis], torch.Tensor]
"""The matrix (output, input) of a dimension."""


def register_resampling() -> None:
    """Route the resampling operators of vk tensors here."""
    for name, has_align, weights in (
        ("upsample_linear1d", True, linear_weights),
        ("upsample_bilinear2d", True, linear_weights),
        ("upsample_trilinear3d", True, linear_weights),
        ("upsample_bicubic2d", True, cubic_weights),
        ("_upsample_bilinear2d_aa", True, smooth_linear_weights),
        ("_upsample_bicubic2d_aa", True, smooth_cubic_weights),
        ("upsample_nearest1d", False, nearest_weights),
        ("upsample_nearest2d", False, nearest_weights),
        ("upsample_nearest3d", False, nearest_weights),
        ("_upsample_nearest_exact1d", False, nearest_exact_weights),
        ("_upsample_nearest_exact2d", False, nearest_exact_weights),
        ("_upsample_nearest_exact3d", False, nearest_exact_weights),
    ):
        route_decomposition(getattr(aten, f"{name}_backward").default, gradient(weights, has_align))
        if name.endswith("_aa"):
            route_decomposition(getattr(aten, name).default, resampled(weights))
    trilinear = torch._decomp.decomposition_table[aten.upsample_trilinear3d.default]
    route_decomposition(aten.upsample_trilinear3d.default, trilinear)


# The matrices ----------------------------------------------------------------------------------------------


def linear_weights(axis: Axis) -> torch.Tensor:
    """Two neighbours, by distance."""
    position = _source_positions(axis).clamp_min(0)
    lower = position.floor().clamp_max(axis.source - 1)
    upper = (lower + 1).clamp_max(axis.source - 1)
    fraction = (position - lower).clamp(0, 1)
    column = axis.pixels(axis.source)
    return (column == lower) * (1 - fraction) + (column == upper) * fraction


def cubic_weights(axis: Axis) -> torch.Tensor:
    """Four neighbours by Keys' cubic convolution with a = -0.75; those outside count as the edge."""
    position = _source_positions(axis)
    lower = position.floor()
    fraction = position - lower
    column = axis.pixels(axis.source)
    total = torch.zeros((), dtype=axis.dtype, device=axis.device)
    for tap in range(-1, 3):
        weight = cubic((fraction - tap).abs(), -0.75)
        total = total + (column == (lower + tap).clamp(0, axis.source - 1)) * weight
    return total


def smooth_linear_weights(axis: Axis) -> torch.Tensor:
    """A triangle as wide as the output's pixels, where these are wider than the input's."""
    return _filtered(axis, 1.0, lambda x: (1 - x).clamp_min(0))


def smooth_cubic_weights(axis: Axis) -> torch.Tensor:
    """As `smooth_linear_weights`, with Keys' cubic convolution with a = -0.5."""
    return _filtered(axis, 2.0, lambda x: cubic(x, -0.5))


def nearest_weights(axis: Axis) -> torch.Tensor:
    """The source pixel at ``floor(output * ratio)``."""
    return _nearest(axis, 0.0)


def nearest_exact_weights(axis: Axis) -> torch.Tensor:
    """The source pixel at ``floor((output + 0.5) * ratio)``."""
    return _nearest(axis, 0.5)


def _nearest(axis: Axis, shift: float) -> torch.Tensor:
    # torch finds the pixel in float32, whatever the dtype.
    single = dataclasses.replace(axis, dtype=torch.float32)
    output = single.pixels(axis.target).unsqueeze(1)
    pixel = ((output + shift) * single.ratio()).floor().clamp_max(axis.source - 1)
    return (single.pixels(axis.source) == pixel).to(axis.dtype)


def _source_positions(axis: Axis) -> torch.Tensor:
    """Where the centres of the output's pixels lie in the input, as a column."""
    output = axis.pixels(axis.target).unsqueeze(1)
    if not axis.align:
        return (output + 0.5) * axis.ratio() - 0.5
    if axis.target == 1:
        return output * 0
    return output * _quotient(axis.source - 1, axis.target - 1, axis.dtype, axis.device)


def _filtered(
    axis: Axis, radius: float, shape: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    ratio: Any = 0.0
    if not axis.align:
        ratio = axis.ratio()
    elif axis.target > 1:
        ratio = _quotient(axis.source - 1, axis.target - 1, axis.dtype, axis.device)
    stretch = (torch.full((), 1.0, dtype=axis.dtype, device=axis.device) * ratio).clamp_min(1)
    center = (axis.pixels(axis.target).unsqueeze(1) + 0.5) * ratio
    first = (center - radius * stretch + 0.5).trunc().clamp_min(0)
    last = (center + radius * stretch + 0.5).trunc().clamp_max(axis.source)
    column = axis.pixels(axis.source)
    weights = shape(((column - center + 0.5) / stretch).abs())
    weights = torch.where((column >= first) & (column < last), weights, 0)
    total = weights.sum(1, keepdim=True)
    return weights / torch.where(total == 0, 1, total)


def cubic(x: torch.Tensor, a: float) -> torch.Tensor:
    """Keys' cubic convolution kernel at distances `x`, which are not negative."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, 0))


def _quotient(numerator: Any, denominator: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """A number where the sizes are numbers, else a tensor."""
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator / denominator
    return torch.full((), numerator, dtype=dtype, device=device) / denominator


# Their products --------------------------------------------------------------------------------------------


def resampled(weights: Weights) -> Callable[..., torch.Tensor]:
    """An interpolating operator with ATen's arguments, by these weights along every dimension."""

    def forward(
        x: torch.Tensor, size: Sequence[int], align: bool, *scales: float | None
    ) -> torch.Tensor:
        dtype = accumulator(x.dtype)
        sources = x.shape[2:]
        scales = (*scales, *[None] * (len(size) - len(scales)))
        result = x.to(dtype)
        for d, (source, target, scale) in enumerate(zip(sources, size, scales, strict=True), 2):
            axis = Axis(source, target, scale, align, dtype, x.device)
            result = along(result, weights(axis), d)
        return _laid_out_like(result.to(x.dtype), x)

    return forward


def gradient(weights: Weights, has_align: bool) -> Callable[..., torch.Tensor]:
    """The gradient of an interpolating operator; nearest ones take no `align_corners`."""

    def backward(
        grad: torch.Tensor, size: Sequence[int], input_size: Sequence[int], *rest: Any
    ) -> torch.Tensor:
        align, scales = (rest[0], rest[1:]) if has_align else (False, rest)
        dtype = accumulator(grad.dtype)
        scales = (*scales, *[None] * (len(size) - len(scales)))
        result = grad.to(dtype)
        for d, (source, target, scale) in enumerate(
            zip(input_size[2:], size, scales, strict=True), 2
        ):
            axis = Axis(source, target, scale, align, dtype, grad.device)
            result = along(result, weights(axis).t(), d)
        return _laid_out_like(result.to(grad.dtype), grad)

    return backward


def along(x: torch.Tensor, matrix: torch.Tensor, dimension: int) -> torch.Tensor:
    """The product of a matrix (output, input) with `x` along one dimension."""
    outer, inner = x.shape[:dimension], x.shape[dimension + 1 :]
    shape = (*outer, matrix.shape[0], *inner)
    if dimension == x.dim() - 1:
        flat = x.reshape(math.prod(outer), x.shape[-1])
        return (flat @ matrix.t()).reshape(shape)
    batched = x.reshape(math.prod(outer), x.shape[dimension], math.prod(inner))
    product = torch.bmm(matrix.expand(batched.shape[0], *matrix.shape), batched)
    return product.reshape(shape)


def _laid_out_like(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return result.contiguous(memory_format=torch._prims_common.suggest_memory_format(x))
