"""grid_sample: in three dimensions, and the gradients in two and three.

In: ATen's grid samplers. Out: gathers, and scattered sums for their gradients. Forbidden: Slang text.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.resampling import cubic

aten = torch.ops.aten

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def register_grid_sampling() -> None:
    """Route the grid samplers of vk tensors here where Inductor has no loops for them."""
    route_decomposition(aten.grid_sampler_3d.default, grid_sampler)
    route_decomposition(aten.grid_sampler_2d_backward.default, grid_sampler_gradient)
    route_decomposition(aten.grid_sampler_3d_backward.default, grid_sampler_gradient)


def grid_sampler(
    x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align: bool
) -> torch.Tensor:
    """aten.grid_sampler_2d and 3d, from differentiable operators.

    Args:
        x: (N, C, *sizes).
        grid: (N, *output, dimensions), x first.
        mode, padding: numbers as ATen passes them.
        align: -1 and 1 are the centres of the outer pixels, not their edges.
    """
    low_precision = x.dtype in (torch.float16, torch.bfloat16)
    image = x.float() if low_precision else x
    points = grid.to(image.dtype)
    sizes = x.shape[2:]
    # The last coordinate of the grid belongs to the first dimension of the image.
    raw = [_unnormalize(points[..., -1 - d], size, align) for d, size in enumerate(sizes)]
    if mode == _BICUBIC:
        result = _bicubic(image, raw, padding, align)
    else:
        positions = [_padded(p, size, padding, align) for p, size in zip(raw, sizes, strict=True)]
        result = _nearest(image, positions) if mode == _NEAREST else _linear(image, positions)
    return result.to(x.dtype)


def grid_sampler_gradient(
    grad: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    mode: int,
    padding: int,
    align: bool,
    output_mask: Any,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """aten.grid_sampler_2d_backward and 3d: the pullback of `grid_sampler`.

    ATen computes the grid's gradient whether asked for or not.
    """
    if output_mask[0]:
        _, pullback = torch.func.vjp(lambda a, b: grid_sampler(a, b, mode, padding, align), x, grid)
        return pullback(grad)
    _, pullback = torch.func.vjp(lambda b: grid_sampler(x, b, mode, padding, align), grid)
    return None, pullback(grad)[0]


def _unnormalize(coordinate: torch.Tensor, size: int, align: bool) -> torch.Tensor:
    if align:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) / 2


def _padded(position: torch.Tensor, size: int, padding: int, align: bool) -> torch.Tensor:
    if padding == _ZEROS:
        return position
    if padding == _REFLECTION:
        position = _reflected(
            position, 0 if align else -1, 2 * (size - 1) if align else 2 * size - 1
        )
    # Written with selections, so that nothing flows back from the edges, as in ATen.
    inside = torch.where(position > 0, position, 0)
    return torch.where(inside < size - 1, inside, size - 1)


def _reflected(position: torch.Tensor, twice_low: int, twice_high: int) -> torch.Tensor:
    if twice_low == twice_high:
        return position * 0
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    distance = (position - low).abs()
    flips = (distance / span).detach().floor()
    extra = distance - flips * span
    return torch.where(flips % 2 == 0, extra + low, span - extra + low)


def _gathered(x: torch.Tensor, indices: list[torch.Tensor], taps: int) -> torch.Tensor:
    """``x[n, :, *indices[n, ...]]``, zero where an index is outside.

    Args:
        x: (N, C, *sizes).
        indices: whole numbers, one tensor per size; all broadcast to (N, taps, *output).
        taps: as in `indices`.

    Returns:
        (N, C, taps, *output).
    """
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    flat = torch.zeros((), dtype=torch.int64, device=x.device)
    for index, size in zip(indices, x.shape[2:], strict=True):
        within = (index >= 0) & (index <= size - 1)
        inside = inside & within
        # Of a coordinate that is NaN or beyond all integers, nothing is read either.
        flat = flat * size + torch.where(within, index, 0).to(torch.int64)
    batch, channels = x.shape[:2]
    flat = flat.reshape(batch, taps, *flat.shape[-len(indices) :])
    places = flat.reshape(batch, 1, -1).expand(batch, channels, -1)
    values = x.reshape(batch, channels, -1).gather(2, places)
    values = values.reshape(batch, channels, *flat.shape[1:])
    return torch.where(inside.reshape(flat.shape).unsqueeze(1), values, 0)


def _nearest(x: torch.Tensor, positions: list[torch.Tensor]) -> torch.Tensor:
    indices = [p.detach().round().unsqueeze(1) for p in positions]
    return _gathered(x, indices, 1).squeeze(2)


def _weighted(
    x: torch.Tensor, indices: list[torch.Tensor], weights: list[torch.Tensor]
) -> torch.Tensor:
    """Sum over the neighbours along every dimension.

    Args:
        x: (N, C, *sizes).
        indices, weights: per dimension (N, 1, …, neighbours, …, 1, *output), the neighbours each
            along a dimension of their own.
    """
    dimensions = len(indices)
    output = indices[0].shape[-dimensions:]
    grid = torch.broadcast_shapes(*(index.shape for index in indices))
    taps = math.prod(grid[1 : 1 + dimensions])
    whole = [index.expand(grid).reshape(grid[0], taps, *output) for index in indices]
    weight: Any = 1
    for own in weights:
        weight = weight * own
    weight = weight.expand(grid).reshape(grid[0], 1, taps, *output)
    return (_gathered(x, whole, taps) * weight).sum(2)


def _neighbours(
    value: torch.Tensor, first: int, count: int, dimension: int, dimensions: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`value` (N, *output) and the offsets of its neighbours, so laid out that they broadcast."""
    offsets = torch.arange(first, first + count, device=value.device, dtype=value.dtype)
    shape = [1] * (1 + 2 * dimensions)
    shape[1 + dimension] = count
    return value.reshape(value.shape[0], *[1] * dimensions, *value.shape[1:]), offsets.reshape(
        shape
    )


def _linear(x: torch.Tensor, positions: list[torch.Tensor]) -> torch.Tensor:
    indices, weights = [], []
    for d, position in enumerate(positions):
        at, tap = _neighbours(position, 0, 2, d, len(positions))
        lower = at.detach().floor()
        indices.append(lower + tap)
        weights.append((1 - tap) + (2 * tap - 1) * (at - lower))
    return _weighted(x, indices, weights)


def _bicubic(
    x: torch.Tensor, positions: list[torch.Tensor], padding: int, align: bool
) -> torch.Tensor:
    indices, weights = [], []
    for d, (position, size) in enumerate(zip(positions, x.shape[2:], strict=True)):
        at, tap = _neighbours(position, -1, 4, d, len(positions))
        lower = at.detach().floor()
        indices.append(_padded(lower + tap, size, padding, align).round())
        weights.append(cubic((at - lower - tap).abs(), -0.75))
    return _weighted(x, indices, weights)
