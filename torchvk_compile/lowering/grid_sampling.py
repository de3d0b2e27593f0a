"""grid_sample: in three dimensions, and the gradients in two and three.

In: ATen's grid samplers. Out: gathers, and scattered sums for their gradients. Forbidden: Slang text.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torchvk_compile.lowering.decomposed import route_decomposition

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
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """aten.grid_sampler_2d_backward and 3d: the pullback of `grid_sampler`."""
    if output_mask[0] and output_mask[1]:
        _, pullback = torch.func.vjp(lambda a, b: grid_sampler(a, b, mode, padding, align), x, grid)
        return pullback(grad)
    if output_mask[0]:
        _, pullback = torch.func.vjp(lambda a: grid_sampler(a, grid, mode, padding, align), x)
        return pullback(grad)[0], None
    if output_mask[1]:
        _, pullback = torch.func.vjp(lambda b: grid_sampler(x, b, mode, padding, align), grid)
        return None, pullback(grad)[0]
    return None, None


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


def _gathered(x: torch.Tensor, indices: list[torch.Tensor]) -> torch.Tensor:
    """``x[n, :, *indices[n, ...]]``, zero where an index is outside."""
    sizes = x.shape[2:]
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    flat = torch.zeros((), dtype=torch.int64, device=x.device)
    for index, size in zip(indices, sizes, strict=True):
        inside = inside & (index >= 0) & (index <= size - 1)
        # Of a coordinate that is NaN or beyond all integers, nothing is read either.
        whole = torch.where((index >= 0) & (index <= size - 1), index, 0).to(torch.int64)
        flat = flat * size + whole
    batch, channels = x.shape[:2]
    output = flat.shape[1:]
    places = flat.reshape(batch, 1, -1).expand(batch, channels, -1)
    values = x.reshape(batch, channels, -1).gather(2, places).reshape(batch, channels, *output)
    return torch.where(inside.unsqueeze(1), values, 0)


def _nearest(x: torch.Tensor, positions: list[torch.Tensor]) -> torch.Tensor:
    return _gathered(x, [p.detach().round() for p in positions])


def _linear(x: torch.Tensor, positions: list[torch.Tensor]) -> torch.Tensor:
    lower = [p.detach().floor() for p in positions]
    result: Any = 0
    for corner in itertools.product((0, 1), repeat=len(positions)):
        weight: Any = 1
        for offset, low, position in zip(corner, lower, positions, strict=True):
            weight = weight * (position - low if offset else low + 1 - position)
        values = _gathered(x, [low + offset for low, offset in zip(lower, corner, strict=True)])
        result = result + values * weight.unsqueeze(1)
    return result


def _bicubic(
    x: torch.Tensor, positions: list[torch.Tensor], padding: int, align: bool
) -> torch.Tensor:
    sizes = x.shape[2:]
    lower = [p.detach().floor() for p in positions]
    weights = [_cubic_weights(p - low) for p, low in zip(positions, lower, strict=True)]
    result: Any = 0
    for i, j in itertools.product(range(4), repeat=2):
        indices = [
            _padded(low + tap - 1, size, padding, align).round()
            for low, tap, size in zip(lower, (i, j), sizes, strict=True)
        ]
        result = result + _gathered(x, indices) * (weights[0][i] * weights[1][j]).unsqueeze(1)
    return result


def _cubic_weights(t: torch.Tensor) -> list[torch.Tensor]:
    """Keys' cubic convolution with a = -0.75."""
    a = -0.75

    def near(x: torch.Tensor) -> torch.Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: torch.Tensor) -> torch.Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]
