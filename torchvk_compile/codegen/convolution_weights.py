"""Gradients of convolution weights: products of the narrow side with patches of the wide side, over all pixels.

In: a `TemplateBuffer` with both sides, a `WeightProduct` and a `TileConfig`. Out: values for the shells
`conv_weights_tile.slang.j2` and `conv_weights_direct.slang.j2`. Forbidden: choosing the configuration.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.convolution_config import fills_tiles, is_direct, workgroup
from torchvk_compile.codegen.convolution_geometry import Axis
from torchvk_compile.codegen.convolution_operand import operand_text
from torchvk_compile.codegen.dtypes import compute_type
from torchvk_compile.codegen.gemm_config import TileConfig
from torchvk_compile.codegen.grid import is_folded
from torchvk_compile.codegen.layout import LANES
from torchvk_compile.codegen.template_kernel import TemplateKernel


@dataclasses.dataclass(frozen=True)
class WeightProduct:
    """``output[g, m, (c, tap)] = sum over n and p of narrow[n, g, m, p] * wide[n, g, c, p at tap]``.

    Attributes:
        axes: the spatial dimensions, from the wide to the narrow side.
        batch: images.
        groups: independent products side by side.
        rows: channels of a group on the narrow side.
        channels: channels of a group on the wide side.
        tap_major: columns are (tap, c), for channels that are consecutive in memory.
    """

    axes: tuple[Axis, ...]
    batch: sympy.Expr
    groups: int
    rows: int
    channels: int
    tap_major: bool

    @property
    def taps(self) -> int:
        """Taps of the kernel."""
        return math.prod(axis.taps for axis in self.axes)

    @property
    def image(self) -> sympy.Expr:
        """Pixels of one image on the narrow side."""
        return sympy_product([axis.size for axis in self.axes])

    @property
    def output_size(self) -> list[sympy.Expr]:
        """Of the buffer a kernel fills."""
        return [sympy.Integer(s) for s in (self.groups, self.rows, self.channels * self.taps)]


class WeightGradientKernel(TemplateKernel):
    """The gradient of a convolution's weights.

    Args:
        output: the buffer, of size `WeightProduct.output_size`; with a split K, that many partial sums first.
        narrow: (N, groups * rows, *spatial); its pixels have one stride (`flat_pixel_stride`).
        wide: (N, groups * channels, *spatial), any strides.
        product: what to compute.
        config: the tiling.
        accumulator: dtype of the sums.
    """

    def __init__(
        self,
        output: ir.TemplateBuffer,
        narrow: ir.IRNode,
        wide: ir.IRNode,
        product: WeightProduct,
        config: TileConfig,
        accumulator: torch.dtype,
    ) -> None:
        super().__init__(
            output,
            index_names=["part"] * (config.split_k > 1) + ["group", "row", "column"],
            value="sums[i][j]",
            accumulator=accumulator,
            epilogue=None,
            template="conv_weights_direct.slang.j2"
            if is_direct(config)
            else "conv_weights_tile.slang.j2",
            layout=workgroup(config, lanes=LANES),
            configuration=str(config),
        )
        self._narrow, self._wide, self._product, self._config = narrow, wide, product, config

    def product_flops(self) -> sympy.Expr:
        product = self._product
        return 2 * sympy_product(product.output_size) * product.batch * product.image

    def shell_values(self) -> dict[str, Any]:
        product, config = self._product, self._config
        columns = product.channels * product.taps
        tiles_m = -(-product.rows // config.block_m)
        one_tap = product.tap_major and fills_tiles(product.channels, config)
        tap_tiles = -(-product.channels // config.block_n)
        tiles_n = product.taps * tap_tiles if one_tap else -(-columns // config.block_n)
        tiles = tiles_m * tiles_n
        invocations = sympy.Integer(tiles * product.groups * config.split_k)
        self.groups = CeilDiv(invocations, 64) if is_direct(config) else invocations
        sizevars = V.graph.sizevars
        vectors = (
            product.tap_major
            and not is_direct(config)
            and all(
                sizevars.statically_known_multiple_of(s, LANES)
                for s in (
                    product.channels,
                    self._wide.get_layout().offset,
                    *self._strides(self._wide, without=1),
                )
            )
        )
        return {
            "config": config,
            "product": product,
            "scalar": compute_type(self._accumulator),
            "floating": self._accumulator.is_floating_point,
            "columns": columns,
            "tiles_m": tiles_m,
            "tiles_n": tiles_n,
            "tap_tiles": tap_tiles,
            "one_tap": one_tap,
            "whole_n": product.channels % config.block_n == 0,
            "folded": is_folded(self.groups),
            "axes": self._axes(),
            "image": self.extent("image", product.image),
            "size_k": self.extent("size_k", product.batch * product.image),
            "narrow": self._narrow_text(),
            "wide": operand_text(self, "wide", self._wide, self._accumulator)
            | {"vectors": vectors},
        }

    def extent(self, name: str, size: sympy.Expr) -> str:
        """A size or stride: a literal where it is known, so that drivers can divide by it quickly."""
        size = V.graph.sizevars.simplify(size)
        return str(size) if size.is_Integer else self.argument(name, size)

    def _strides(self, node: ir.IRNode, *, without: int) -> list[sympy.Expr]:
        """Strides that matter, but for one dimension."""
        size = node.get_size()
        return [
            stride
            for d, stride in enumerate(node.get_layout().stride)
            if d != without and not V.graph.sizevars.statically_known_equals(size[d], 1)
        ]

    def _axes(self) -> list[dict[str, Any]]:
        elements = self._wide.get_layout().stride[2:]
        return [
            {
                "d": d,
                "positions": self.extent(f"positions{d}", axis.size),
                "source": self.extent(f"source{d}", axis.source),
                "stride": axis.source_stride,
                "start": axis.phases[0].start,
                "step": axis.source_step,
                "taps": axis.taps,
                "element": self.extent(f"element{d}", elements[d]),
                "checked": axis.overhangs,
            }
            for d, axis in enumerate(self._product.axes)
        ]

    def _narrow_text(self) -> dict[str, Any]:
        product, layout = self._product, self._narrow.get_layout()
        sizevars = V.graph.sizevars
        pixel, batch, channel = flat_pixel_stride(self._narrow), layout.stride[0], layout.stride[1]
        assert pixel is not None
        dense = sizevars.statically_known_equals(
            product.batch, 1
        ) or sizevars.statically_known_equals(batch, pixel * product.image)
        run, others = "none", [layout.offset, batch]
        if sizevars.statically_known_equals(channel, 1) and product.rows % LANES == 0:
            run = "outer"
            others.append(pixel)
        elif sizevars.statically_known_equals(pixel, 1):
            run = "k"
            others += [channel, product.image]
        aligned = all(sizevars.statically_known_multiple_of(s, LANES) for s in others)
        return operand_text(self, "narrow", self._narrow, self._accumulator) | {
            "pixel_stride": self.extent("narrow_pixel", pixel),
            "dense": dense,
            # Vectors of four channels, or of four pixels of one image.
            "run": run if aligned else "none",
        }


def flat_pixel_stride(node: ir.IRNode) -> sympy.Expr | None:
    """Elements between consecutive pixels of an image, or None where pixels are not in row-major order."""
    size, stride = node.get_size()[2:], node.get_layout().stride[2:]
    sizevars = V.graph.sizevars
    unit, extent = None, sympy.Integer(1)
    for s, length in zip(reversed(stride), reversed(size), strict=True):
        if sizevars.statically_known_equals(length, 1):
            continue
        if unit is None:
            unit = s
        elif not sizevars.statically_known_equals(s, unit * extent):
            return None
        extent = extent * length
    return sympy.Integer(1) if unit is None else unit
