"""Convolutions of 3 x 3 taps by Winograd's method, forward and backward to the input.

In: a convolution whose tile is being chosen. Out: the method as a candidate, and its kernels. Forbidden: Slang text;
being the default.

Outputs are sums of differences of sums: an infinity in a patch makes NaN of the outputs it reaches, where plain sums
give infinity, and numbers near the largest float overflow. Hence only measured choices (`tuning`) may take the method.
No output depends on more elements than in plain sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V, ops

from torchvk_compile import config
from torchvk_compile.codegen.gemm_config import TileConfig, choose_config
from torchvk_compile.codegen.template_kernel import Epilogue
from torchvk_compile.codegen.winograd import (
    POINTS,
    WinogradConfig,
    WinogradOutput,
    WinogradProduct,
    transformed_source,
    transformed_weights,
)
from torchvk_compile.lowering.matmul import product_buffer

if TYPE_CHECKING:
    from torchvk_compile.lowering.convolution import Geometry

_FEWEST_CHANNELS = 16
"""On either side; with fewer the transforms outweigh what the products save."""

_LARGEST_WORKSPACE = 256 * 2**20
"""Bytes that the transformed source and the products may take: eight times source and output."""

_HINT = 64
"""Stands for an extent that is known only when the graph runs."""


def winograd_product(
    geometry: Geometry,
    source: ir.IRNode,
    size: Sequence[sympy.Expr],
    *,
    adjoint: bool,
    channels_last: bool,
) -> WinogradProduct | None:
    """The convolution in this method's terms, or None where it does not apply; arguments as `multiply_patches`."""
    narrow, wide = geometry.channels
    outputs, channels = (wide, narrow) if adjoint else (narrow, wide)
    plain = (
        config.winograd
        and geometry.taps == [3, 3]
        and geometry.stride == geometry.dilation == [1, 1]
        and geometry.groups == 1
        and not channels_last
        and all(0 <= padding <= 2 for padding in geometry.padding)
    )
    floating = source.get_dtype() in (torch.float32, torch.float16, torch.bfloat16)
    if not (plain and floating) or min(outputs, channels) < _FEWEST_CHANNELS:
        return None
    above, left = ((2 - p if adjoint else p) for p in geometry.padding)
    product = WinogradProduct(
        images=source.get_size()[0],
        channels=channels,
        outputs=outputs,
        height=size[0],
        width=size[1],
        padding=(above, left),
        adjoint=adjoint,
    )
    workspace = 4 * POINTS * (channels + outputs) * _tiles(product)
    return product if workspace <= _LARGEST_WORKSPACE else None


def candidate(profile: Any, product: WinogradProduct) -> WinogradConfig:
    """The method with the tile that the model chooses for its products."""
    sizes = POINTS, product.outputs, _tiles(product), product.channels
    tile = choose_config(profile, *sizes, torch.float32)
    return WinogradConfig(
        dataclasses.replace(tile, split_k=1) if isinstance(tile, TileConfig) else tile
    )


def multiply_winograd(
    source: ir.IRNode,
    weights: ir.IRNode,
    product: WinogradProduct,
    choice: WinogradConfig,
    bias: ir.IRNode | None,
) -> ir.TensorBox:
    """A tensor of size (N, outputs, height, width)."""
    device = source.get_device()
    patches = transformed_source(source, product).data.data
    taps = transformed_weights(weights, product).data.data
    size = [sympy.Integer(POINTS), sympy.Integer(product.outputs), product.tiles]
    layout = ir.FixedLayout(device, torch.float32, size)
    products = product_buffer(layout, [taps, patches], choice.product, torch.float32, None)
    epilogue = None if bias is None else _adding(bias)

    def make_kernel(output: ir.TemplateBuffer, **_: Any) -> tuple[WinogradOutput, None]:
        return WinogradOutput(output, output.inputs[0], product, choice, epilogue), None

    size = [product.images, sympy.Integer(product.outputs), product.height, product.width]
    layout = ir.FixedLayout(device, source.get_dtype(), size)
    inputs = [products.data.data] + [bias] * (bias is not None)
    return ir.TensorBox.create(ir.TemplateBuffer(layout, inputs, make_kernel))


def _adding(bias: ir.IRNode) -> Epilogue:
    load: Callable[..., Any] = ir.TensorBox(bias).make_loader()

    def epilogue(value: Any, indices: Sequence[sympy.Expr]) -> Any:
        return ops.add(value, ops.to_dtype(load([indices[1]]), torch.float32))

    return epilogue


def _tiles(product: WinogradProduct) -> int:
    return V.graph.sizevars.optimization_hint(product.tiles, fallback=_HINT**2)
