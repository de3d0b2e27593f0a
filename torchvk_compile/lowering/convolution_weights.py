"""Weight gradients of convolutions.

In: both sides of a convolution. Out: the gradient of its weights, summed over all pixels, in two passes where one would
leave the device idle. Forbidden: Slang text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from torchvk_compile.codegen.convolution_config import (
    alternatives,
    choose_config,
    fills_tiles,
)
from torchvk_compile.codegen.convolution_weights import (
    WeightGradientKernel,
    WeightProduct,
    flat_pixel_stride,
)
from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.lowering.convolution import (
    accumulator_of,
    finish_parts,
    is_channels_last,
    is_empty,
    zeros,
)
from torchvk_compile.lowering.depthwise import depthwise_weight_gradient, is_depthwise
from torchvk_compile.lowering.matmul import realize_operand
from torchvk_compile.tuning.choice import chosen

if TYPE_CHECKING:
    from torchvk_compile.lowering.convolution import Geometry
    from torchvk_compile.tuning.problem import Problem

aten = torch.ops.aten
prims = torch.ops.prims

_HINT = 4096
"""Stands for a number of pixels that is known only when the graph runs."""


def weight_gradient(
    op: str,
    geometry: Geometry,
    narrow: ir.IRNode,
    wide: ir.IRNode,
    problem: Callable[[], Problem],
) -> ir.TensorBox:
    """The gradient of the weights.

    Args:
        op: name of the operator, for errors.
        geometry: the convolution.
        narrow: (N, first, *spatial): the gradient of a plain convolution's output, or a transposed convolution's input.
        wide: (N, groups * second, *spatial): the other one of input and gradient.
        problem: the operator's call.

    Returns:
        A tensor of the weights' size; channels last if the wide side is.
    """
    accumulator = accumulator_of(op, wide)
    size = [geometry.first, geometry.second, *geometry.taps]
    if is_empty([*size, *narrow.get_size()]):
        return zeros(wide, size)
    if is_depthwise(geometry, 1):
        total = depthwise_weight_gradient(geometry, narrow, wide, accumulator)
        return lowerings[prims.convert_element_type](total, wide.get_dtype())
    if flat_pixel_stride(narrow) is None:
        narrow = realize_operand(ir.ExternKernel.require_contiguous(ir.TensorBox(narrow)))
    rows, channels = geometry.channels
    device = wide.get_device()
    assert device is not None
    taps = math.prod(geometry.taps)
    pixels = V.graph.sizevars.optimization_hint(
        sympy_product([narrow.get_size()[0], *narrow.get_size()[2:]]), fallback=_HINT
    )
    profile = profile_of(device.index or 0)
    sizes = geometry.groups, rows, channels * taps, pixels
    config = chosen(
        choose_config(profile, *sizes, accumulator, taps=taps),
        lambda: alternatives(profile, *sizes, accumulator, taps=taps),
        problem,
    )
    product = WeightProduct(
        axes=geometry.axes(wide.get_size()[2:], narrow.get_size()[2:], adjoint=False),
        batch=wide.get_size()[0],
        groups=geometry.groups,
        rows=rows,
        channels=channels,
        tap_major=is_channels_last(wide) or fills_tiles(channels, config),
    )
    split = config.split_k > 1
    layout = ir.FixedLayout(
        device,
        accumulator if split else wide.get_dtype(),
        [sympy.Integer(config.split_k)] * split + product.output_size,
    )

    def make_kernel(
        output: ir.TemplateBuffer, hint_override: int | None = None
    ) -> tuple[Any, None]:
        a, b = output.inputs
        return WeightGradientKernel(output, a, b, product, config, accumulator), None

    result = ir.TensorBox.create(ir.TemplateBuffer(layout, [narrow, wide], make_kernel))
    if split:
        result = finish_parts(result, wide.get_dtype(), None)
    if product.tap_major:
        result = lowerings[aten.view](result, [geometry.first, *geometry.taps, channels])
        dimensions = len(geometry.taps)
        return lowerings[aten.permute](result, [0, dimensions + 1, *range(1, dimensions + 1)])
    return lowerings[aten.view](result, [geometry.first, channels, *geometry.taps])
