"""Pooling that Inductor has no loops for: gradients of maxima, wide windows, adaptive maxima.

In: ATen pooling operators. Out: gathers, reductions and scattered sums. Forbidden: Slang text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor.lowering import lowerings

from torchvk_compile.lowering.decomposed import lower_decomposed, route_decomposition
from torchvk_compile.lowering.registry import route
from torchvk_compile.lowering.windows import (
    accumulator,
    beside,
    from_zero,
    whole_numbers,
    window_sum,
)

aten = torch.ops.aten

_WIDEST_WINDOW = 25
"""Elements of a window up to which Inductor unrolls its own loops."""


def register_pooling() -> None:
    """Route pooling of vk tensors here where Inductor would hand it back to eager."""
    for dimensions in (2, 3):
        gradient = functools.partial(scatter_gradient, dimensions=dimensions)
        maximum = f"max_pool{dimensions}d"
        pool = functools.partial(_max_gradient, dimensions=dimensions)
        route_decomposition(getattr(aten, f"{maximum}_with_indices_backward").default, pool)
        route_decomposition(getattr(aten, f"adaptive_{maximum}").default, adaptive_maximum)
        route_decomposition(getattr(aten, f"adaptive_{maximum}_backward").default, gradient)
        pool = functools.partial(_fractional_max_gradient, dimensions=dimensions)
        route_decomposition(getattr(aten, f"fractional_{maximum}_backward").default, pool)
    route(aten.fractional_max_pool3d.default, _fractional_volume)
    for dimensions in (2, 3):
        average = getattr(aten, f"avg_pool{dimensions}d").default
        route_decomposition(average, average_pool, unless=_is_narrow)
        backward = getattr(aten, f"avg_pool{dimensions}d_backward").default
        route_decomposition(backward, average_pool_gradient, unless=_gradient_is_narrow)
    route_decomposition(
        aten._adaptive_avg_pool2d.default, adaptive_average, unless=_adaptive_is_narrow
    )
    route_decomposition(aten._adaptive_avg_pool3d.default, adaptive_average)
    for dimensions in (2, 3):
        backward = getattr(aten, f"_adaptive_avg_pool{dimensions}d_backward").default
        gradient = functools.partial(adaptive_average_gradient, dimensions=dimensions)
        route_decomposition(backward, gradient)


_fractional_lowering = lowerings[aten.fractional_max_pool3d.default]


def _fractional_volume(x: Any, kernel_size: Any, output_size: Any, samples: Any) -> Any:
    # ATen takes the samples of volumes outermost first; Inductor reads them, as those of images, last first.
    return _fractional_lowering(x, kernel_size, output_size, lower_decomposed(_reversed, samples))


def _reversed(samples: torch.Tensor) -> torch.Tensor:
    return samples.flip(2)


# Maxima ----------------------------------------------------------------------------------------------------


def _max_gradient(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: torch.Tensor,
    *,
    dimensions: int,
) -> torch.Tensor:
    return scatter_gradient(grad, x, indices, dimensions)


def _fractional_max_gradient(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    indices: torch.Tensor,
    *,
    dimensions: int,
) -> torch.Tensor:
    return scatter_gradient(grad, x, indices, dimensions)


def scatter_gradient(
    grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor, dimensions: int
) -> torch.Tensor:
    """Add every gradient to the element that was the maximum.

    Args:
        grad: gradient of the pooled values.
        x: what was pooled.
        indices: for each pooled value its place among the last dimensions of `x`.
        dimensions: how many of them were pooled.
    """
    dtype = torch.float32 if grad.dtype in (torch.float16, torch.bfloat16) else grad.dtype
    outer = x.shape[: x.dim() - dimensions]
    pixels = math.prod(x.shape[x.dim() - dimensions :])
    pooled = math.prod(grad.shape[grad.dim() - dimensions :])
    zeros = torch.zeros((*outer, pixels), dtype=dtype, device=x.device)
    flat = grad.reshape(*outer, pooled).to(dtype)
    summed = zeros.scatter_add(-1, indices.reshape(*outer, pooled), flat)
    return summed.reshape(x.shape).to(grad.dtype)


def adaptive_maximum(x: torch.Tensor, size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """aten.adaptive_max_pool2d and 3d: the maxima and their places."""
    spatial = len(size)
    sources = x.shape[x.dim() - spatial :]
    outer = x.dim() - spatial
    lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    taken: list[Any] = [slice(None)] * outer
    firsts, widths = [], []
    for d, (source, target) in enumerate(zip(sources, size, strict=True)):
        # Windows along dimension d of the output are laid along dimension d + spatial of the gathered tensor.
        output = torch.arange(target, device=x.device)
        first = output * source // target
        last = ((output + 1) * source + target - 1) // target
        width = min(-(-source // target) + 1, source)
        index = first.unsqueeze(1) + torch.arange(width, device=x.device)
        shape = [1] * (2 * spatial)
        shape[d], shape[d + spatial] = target, width
        inside = inside & (index < last.unsqueeze(1)).reshape(shape)
        taken.append(index.clamp_max(source - 1).reshape(shape))
        firsts.append(first.reshape([target if i == d else 1 for i in range(spatial)]))
        widths.append(width)
    values = torch.where(inside, x[tuple(taken)], lowest)
    flat = values.reshape(*values.shape[: outer + spatial], -1)
    # The first element of a window is one of its own, so no other is found, not even among the smallest numbers.
    where = flat.argmax(-1)
    places = torch.zeros((), dtype=torch.int64, device=x.device)
    stride = 1
    for source, first, width in zip(sources[::-1], firsts[::-1], widths[::-1], strict=True):
        places = places + (first + where % width) * stride
        where, stride = where // width, stride * source
    return flat.amax(-1), places


# Averages --------------------------------------------------------------------------------------------------


def average_pool(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """aten.avg_pool2d and 3d with wide windows, one dimension after the other."""
    windows = _windows(x, kernel_size, stride, padding, ceil_mode)
    result = x
    for window in windows:
        result = window.sum(result)
    divisor = _divisor(windows, count_include_pad, divisor_override, result.dtype, x)
    return (result / divisor).to(x.dtype)


def average_pool_gradient(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """aten.avg_pool2d_backward and 3d with wide windows."""
    windows = _windows(x, kernel_size, stride, padding, ceil_mode)
    dtype = accumulator(x.dtype)
    result = grad.to(dtype) / _divisor(windows, count_include_pad, divisor_override, dtype, x)
    for window in windows:
        result = window.spread(result)
    return result.to(grad.dtype)


def adaptive_average(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """aten._adaptive_avg_pool2d and 3d."""
    result = x
    for d, target in enumerate(size, x.dim() - len(size)):
        first, last, reach = _adaptive_windows(target, x.shape[d], x.device)
        total = window_sum(result, d, first, last, reach=reach)
        result = total / beside((last - first).to(total.dtype), x.dim() - d - 1)
    return result.to(x.dtype)


def adaptive_average_gradient(grad: torch.Tensor, x: torch.Tensor, dimensions: int) -> torch.Tensor:
    """aten._adaptive_avg_pool2d_backward and 3d; `dimensions` were pooled."""
    result = grad.to(accumulator(grad.dtype))
    pooled = range(x.dim() - dimensions, x.dim())
    for d in pooled:
        first, last, _ = _adaptive_windows(grad.shape[d], x.shape[d], x.device)
        result = result / beside((last - first).to(result.dtype), x.dim() - d - 1)
    for d in pooled:
        # The windows that have an element are found as windows are, with the sizes exchanged.
        first, last, reach = _adaptive_windows(x.shape[d], grad.shape[d], x.device)
        result = window_sum(result, d, first, last, reach=reach)
    return result.to(grad.dtype)


def _adaptive_windows(
    count: Any, extent: Any, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """`count` windows that cover a dimension: where they begin, where they end, elements of the longest."""
    number = whole_numbers(count, (count + 1) * (extent + 1), device)
    first = number * extent // count
    last = ((number + 1) * extent + count - 1) // count
    whole = isinstance(count, int) and isinstance(extent, int)
    if whole and (extent % count == 0 or count % extent == 0):
        return first, last, -(-extent // count)
    return first, last, -(-extent // count) + 1


class _Window:
    """Windows along one dimension."""

    def __init__(
        self, dimension: int, source: int, kernel: int, stride: int, padding: int, ceil: bool
    ) -> None:
        self.dimension, self.source = dimension, source
        self.kernel, self.stride, self.padding = kernel, stride, padding
        spare = source + 2 * padding - kernel
        self.count = (spare + (stride - 1 if ceil else 0)) // stride + 1
        # The last window starts inside of the input or of the padding before it.
        if ceil and (self.count - 1) * stride >= source + padding:
            self.count -= 1

    def starts(self, device: torch.device) -> torch.Tensor:
        """Where the windows begin; before the input for those that reach into the padding."""
        largest = self.source + 2 * self.padding + self.stride
        return whole_numbers(self.count, largest, device) * self.stride - self.padding

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of every window."""
        first = self.starts(x.device)
        last = (first + self.kernel).clamp_max(self.source)
        return window_sum(x, self.dimension, from_zero(first), last, reach=self.kernel)

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """The sum, for every element, over the windows that have it."""
        reach = -(-self.kernel // self.stride)
        largest = self.source + self.padding + (reach + 1) * self.stride
        place = whole_numbers(self.source, largest, x.device) + self.padding
        last = place // self.stride + 1
        # As if windows began before the padding, so that no negative number is divided.
        first = (place + (reach + 1) * self.stride - self.kernel) // self.stride - reach
        first, last = from_zero(first), last.clamp_max(self.count)
        return window_sum(x, self.dimension, first, last, reach=reach)

    def lengths(self, with_padding: bool, device: torch.device) -> torch.Tensor:
        """Elements of each window, with or without padding."""
        first = self.starts(device)
        if with_padding:
            return (first + self.kernel).clamp_max(self.source + self.padding) - first
        return (first + self.kernel).clamp_max(self.source) - first.clamp_min(0)


def _windows(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
) -> list[_Window]:
    spatial = x.dim() - 2 if len(kernel_size) == 1 else len(kernel_size)
    kernel, step, pad = (
        list(v) * spatial if len(v) == 1 else list(v)
        for v in (kernel_size, stride or kernel_size, padding)
    )
    first = x.dim() - spatial
    return [
        _Window(first + d, x.shape[first + d], kernel[d], step[d], pad[d], ceil)
        for d in range(spatial)
    ]


def _divisor(
    windows: Sequence[_Window],
    with_padding: bool,
    override: int | None,
    dtype: torch.dtype,
    x: torch.Tensor,
) -> Any:
    if override is not None:
        return override
    total = torch.ones((), dtype=dtype, device=x.device)
    for i, window in enumerate(windows):
        shape = [1] * len(windows)
        shape[i] = window.count
        total = total * window.lengths(with_padding, x.device).to(dtype).reshape(shape)
    return total


# Which windows Inductor's own loops take ---------------------------------------------------------------------


def _is_narrow(x: Any, kernel_size: Sequence[int], *rest: Any, **options: Any) -> bool:
    spatial = len(x.get_size()) - 2 if len(kernel_size) == 1 else len(kernel_size)
    kernel = list(kernel_size) * spatial if len(kernel_size) == 1 else kernel_size
    return len(kernel) == 2 and math.prod(kernel) <= _WIDEST_WINDOW


def _gradient_is_narrow(
    grad: Any,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    *rest: Any,
    **options: Any,
) -> bool:
    # Inductor's loops divide by the whole window also where the last one hangs over the end (torch 2.11 to 2.13).
    return not ceil_mode and _is_narrow(x, kernel_size)


def _adaptive_is_narrow(x: Any, size: Sequence[Any]) -> bool:
    extents = [sympy.sympify(extent) for extent in (*x.get_size()[-2:], *size)]
    if not all(extent.is_Integer for extent in extents):
        return False
    windows = [
        -(-int(source) // int(target)) + 1
        for source, target in zip(extents, extents[2:], strict=False)
    ]
    return math.prod(windows) <= _WIDEST_WINDOW
