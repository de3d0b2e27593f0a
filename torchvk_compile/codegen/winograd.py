"""Winograd's method F(2x2, 3x3) for convolutions of stride one: 16 multiplications for four outputs in place of 36.

In: source and weights, a `WinogradProduct`. Out: the launches that transform both, and the kernel that makes outputs of
the 16 products between them. Forbidden: the products themselves, deciding where the method is used.

With d a patch of 4 x 4 elements, g the 3 x 3 taps and the products elementwise, a tile of 2 x 2 outputs is
``A' ((G g G') * (B' d B)) A`` (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.1).
Summed over channels this is 16 matrix products. All of it is computed in float32.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.utils import sympy_product
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.dtypes import storage_type, to_compute
from torchvk_compile.codegen.gemm_config import GemmConfig
from torchvk_compile.codegen.launch import Launch, Shell
from torchvk_compile.codegen.layout import LANES, WORKGROUP_SIZE, WorkgroupLayout
from torchvk_compile.codegen.template_kernel import Epilogue, TemplateKernel

POINTS = 16
"""Matrix products."""


@dataclasses.dataclass(frozen=True)
class WinogradConfig:
    """A convolution by Winograd's method.

    Attributes:
        product: the tile of the 16 products; K is not split.
    """

    product: GemmConfig

    def __str__(self) -> str:
        return f"Winograd F(2x2, 3x3), {self.product}"


@dataclasses.dataclass(frozen=True)
class WinogradProduct:
    """``output[n, k, y, x] = sum of weights[k, c, i, j] * source[n, c, y + i - padding, x + j - padding]``.

    Attributes:
        images, channels, outputs: of source and output.
        height, width: of the output.
        padding: above and on the left, in this direction.
        adjoint: the weights' first dimension is reduced, and taps are read from the last to the first.
    """

    images: sympy.Expr
    channels: int
    outputs: int
    height: sympy.Expr
    width: sympy.Expr
    padding: tuple[int, int]
    adjoint: bool

    @property
    def tile_rows(self) -> sympy.Expr:
        """Of an image."""
        return CeilDiv(self.height, sympy.Integer(2))

    @property
    def pairs(self) -> sympy.Expr:
        """Pairs of neighbouring tiles in a row of them: four outputs each."""
        return CeilDiv(self.width, sympy.Integer(LANES))

    @property
    def tiles(self) -> sympy.Expr:
        """Columns of the products: tiles of all images, in whole vectors."""
        return CeilDiv(self.images * self.tile_rows * 2 * self.pairs, sympy.Integer(LANES)) * LANES


def transformed_source(source: ir.IRNode, product: WinogradProduct) -> ir.TensorBox:
    """(16, channels, tiles) from (N, channels, height, width) with any strides."""
    layout = source.get_layout()
    sizes: dict[str, sympy.Expr] = {
        "source_origin": layout.offset,
        "source_batch": layout.stride[0],
        "source_channel": layout.stride[1],
        "source_row": layout.stride[2],
        "source_column": layout.stride[3],
        "height": source.get_size()[2],
        "width": source.get_size()[3],
        "images": product.images,
        "channels": sympy.Integer(product.channels),
        "tiles": product.tiles,
        "tile_rows": product.tile_rows,
        "tile_columns": 2 * product.pairs,
    }
    size = [sympy.Integer(POINTS), sympy.Integer(product.channels), product.tiles]
    values = {"padding": product.padding}
    return _launch("winograd_source", "source", source, size, sizes, values)


def transformed_weights(weights: ir.IRNode, product: WinogradProduct) -> ir.TensorBox:
    """(16, outputs, channels) from (outputs, channels, 3, 3), or (channels, outputs, 3, 3) for the adjoint."""
    layout = weights.get_layout()
    first, second, row, column = layout.stride
    output, channel = (second, first) if product.adjoint else (first, second)
    sizes: dict[str, sympy.Expr] = {
        "weights_origin": layout.offset,
        "weights_output": output,
        "weights_channel": channel,
        "weights_row": row,
        "weights_column": column,
        "outputs": sympy.Integer(product.outputs),
        "channels": sympy.Integer(product.channels),
    }
    size = [sympy.Integer(s) for s in (POINTS, product.outputs, product.channels)]
    values = {"flipped": product.adjoint}
    return _launch("winograd_weights", "weights", weights, size, sizes, values)


def _launch(
    template: str,
    name: str,
    node: ir.IRNode,
    size: list[sympy.Expr],
    sizes: dict[str, sympy.Expr],
    values: dict[str, Any],
) -> ir.TensorBox:
    dtype = node.get_dtype()
    shell = Shell(
        template=f"{template}.slang.j2",
        workgroup_size=WORKGROUP_SIZE,
        modules=("torchvk_memory",),
        values=values | {"storage": storage_type(dtype), "value": to_compute(dtype, "stored")},
    )
    groups = CeilDiv(sympy_product(size[1:]), sympy.Integer(WORKGROUP_SIZE))
    return Launch.create(node.get_device(), torch.float32, size, shell, {name: node}, sizes, groups)


class WinogradOutput(TemplateKernel):
    """Outputs from the products.

    Args:
        output: (N, outputs, height, width).
        products: (16, outputs, tiles), float32.
        product: the convolution.
        config: how it is computed, for reports.
        epilogue: see `TemplateKernel`.
    """

    def __init__(
        self,
        output: ir.TemplateBuffer,
        products: ir.IRNode,
        product: WinogradProduct,
        config: WinogradConfig,
        epilogue: Epilogue | None,
    ) -> None:
        super().__init__(
            output,
            index_names=["batch", "channel", "y", "x"],
            value="sums",
            accumulator=torch.float32,
            epilogue=epilogue,
            template="winograd_output.slang.j2",
            layout=WorkgroupLayout(WORKGROUP_SIZE, 1, LANES, 1, inner=False, persistent=False),
            configuration=str(config),
        )
        self._products, self._product = products, product

    def product_flops(self) -> sympy.Expr:
        """24 additions a tile."""
        return 24 * self._product.outputs * self._product.tiles

    def shell_values(self) -> dict[str, Any]:
        product = self._product
        invocations = product.images * product.outputs * product.tile_rows * product.pairs
        self.groups = CeilDiv(invocations, sympy.Integer(WORKGROUP_SIZE))
        return {
            "source": self.args.input(self._products.get_name()),
            "images": self.argument("images", product.images),
            "outputs": str(product.outputs),
            "tile_rows": self.argument("tile_rows", product.tile_rows),
            "pairs": self.argument("pairs", product.pairs),
            "tiles": self.argument("tiles", product.tiles),
            "size_y": self.argument("size_y", product.height),
        }
