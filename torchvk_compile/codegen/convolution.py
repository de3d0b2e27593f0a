"""Convolutions as products of weights with patches that are gathered while they are multiplied.

In: a `TemplateBuffer` with source and weights, a `PatchProduct` and a `TileConfig`. Out: values for the shells
`conv_tile.slang.j2` and `conv_direct.slang.j2`. Forbidden: choosing the configuration, knowing the ATen operator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.convolution_config import MOST_PADDING, is_direct, workgroup
from torchvk_compile.codegen.convolution_geometry import Axis
from torchvk_compile.codegen.convolution_operand import conversions, operand_text
from torchvk_compile.codegen.dtypes import compute_type, storage_type
from torchvk_compile.codegen.gemm_config import TileConfig
from torchvk_compile.codegen.grid import is_folded
from torchvk_compile.codegen.layout import LANES
from torchvk_compile.codegen.template_kernel import Epilogue, TemplateKernel


@dataclasses.dataclass(frozen=True)
class PatchProduct:
    """``output[n, g, m, p] = sum over c and taps of weights[g, m, c, tap] * source[n, g, c, p at tap]``.

    Attributes:
        axes: the spatial dimensions.
        adjoint: the weights' first dimension is reduced (input gradient, transposed convolution), else the second.
        batch: images.
        groups: independent products side by side.
        channels: reduced channels of a group.
        outputs: output channels of a group.
        pixel_rows: the output's channels are consecutive in memory (channels last), else its pixels are.
    """

    axes: tuple[Axis, ...]
    adjoint: bool
    batch: sympy.Expr
    groups: int
    channels: int
    outputs: int
    pixel_rows: bool

    @property
    def phases(self) -> int:
        """Products that the outputs of one group are divided into."""
        return math.prod(axis.output_stride for axis in self.axes)

    @property
    def pixels(self) -> sympy.Expr:
        """Output pixels of a phase, over all images."""
        return self.batch * sympy_product([axis.positions for axis in self.axes])

    @property
    def output_size(self) -> list[sympy.Expr]:
        """Of the buffer a kernel fills: (batch, groups, outputs, pixels), or (pixels, groups, outputs)."""
        image = sympy_product([axis.size for axis in self.axes])
        groups, outputs = sympy.Integer(self.groups), sympy.Integer(self.outputs)
        if self.pixel_rows:
            return [self.batch * image, groups, outputs]
        return [self.batch, groups, outputs, image]


@dataclasses.dataclass(frozen=True)
class AxisText:
    """An `Axis` in the shell's words; texts are Slang expressions, those of a phase in terms of ``residue<d>``."""

    d: int
    positions: str
    size: str
    source: str
    source_stride: int
    source_step: int
    output_stride: int
    tap_step: int
    taps: str
    first_tap: str
    start: str
    element: str
    weight_element: str
    checked: bool
    ragged: bool


class PatchKernel(TemplateKernel):
    """Forward convolution and its adjoint.

    Args:
        output: the buffer, of size `PatchProduct.output_size`; with a split K, that many partial sums first.
        source: (N, groups * channels, *spatial), any strides.
        weights: (groups * outputs, channels, *taps), or (groups * channels, outputs, *taps) for the adjoint.
        product: what to compute.
        config: the tiling; rows are output channels and columns pixels, or the other way round (`pixel_rows`).
        accumulator: dtype of the sums.
        epilogue: see `TemplateKernel`.
    """

    def __init__(
        self,
        output: ir.TemplateBuffer,
        source: ir.IRNode,
        weights: ir.IRNode,
        product: PatchProduct,
        config: TileConfig,
        accumulator: torch.dtype,
        epilogue: Epilogue | None,
    ) -> None:
        places = (
            ["pixel", "group", "channel"]
            if product.pixel_rows
            else ["batch", "group", "channel", "pixel"]
        )
        super().__init__(
            output,
            index_names=["part"] * (config.split_k > 1) + places,
            value="sums[i][j][lane]" if _is_scattered(product) else "sums[i][j]",
            accumulator=accumulator,
            epilogue=epilogue,
            template="conv_direct.slang.j2" if is_direct(config) else "conv_tile.slang.j2",
            layout=workgroup(config, lanes=1 if _is_scattered(product) else LANES),
            configuration=str(config),
        )
        self._source, self._weights, self._product, self._config = source, weights, product, config

    def product_flops(self) -> sympy.Expr:
        product = self._product
        taps = math.prod(axis.taps for axis in product.axes)
        return 2 * product.pixels * product.groups * product.outputs * product.channels * taps

    def shell_values(self) -> dict[str, Any]:
        product, config = self._product, self._config
        outputs, pixels = sympy.Integer(product.outputs), product.pixels
        size_m, size_n = (pixels, outputs) if product.pixel_rows else (outputs, pixels)
        blocks = CeilDiv(size_m, config.block_m) * CeilDiv(size_n, config.block_n)
        invocations = blocks * product.groups * product.phases * config.split_k
        self.groups = CeilDiv(invocations, 64) if is_direct(config) else invocations
        order = self._order()
        return {
            "config": config,
            "product": product,
            "scalar": compute_type(self._accumulator),
            "floating": self._accumulator.is_floating_point,
            "size_m": self.extent("size_m", size_m),
            "size_n": self.extent("size_n", size_n),
            "size_p": self.extent("size_p", pixels),
            "folded": is_folded(self.groups),
            "axes": self._axes(),
            "image": self.extent("image", sympy_product([axis.size for axis in product.axes])),
            "single": V.graph.sizevars.statically_known_equals(product.batch, 1),
            "order": order,
            "tap_count": math.prod(axis.taps for axis in product.axes),
            "phase_constants": self._phase_constants(),
            "source": self._source_text(order),
            "weights": self._weights_text(order),
            "scattered": _is_scattered(product),
        }

    def extent(self, name: str, size: sympy.Expr) -> str:
        """A size or stride: a literal where it is known, so that drivers can divide by it quickly."""
        size = V.graph.sizevars.simplify(size)
        return str(size) if size.is_Integer else self.argument(name, size)

    # How the reduction walks -------------------------------------------------------------------------------

    def _order(self) -> str:
        """``"taps"``: tap by tap, in steps of channels; else one row of (channel, tap) or (tap, channel).

        Steps that stay within a tap find each pixel once per tap. The flat orders waste nothing on few channels, but
        divide at every element; they need the weights of an output in one row.
        """
        product, block_k = self._product, self._config.block_k
        padded = -(-product.channels // block_k) * block_k
        taps = [axis.taps for axis in product.axes]
        count = math.prod(taps)
        if product.phases > 1 or count == 1 or padded <= MOST_PADDING * product.channels:
            return "taps"
        channel_stride = self._weight_strides()[2]
        unit = self._tap_unit()
        equal = V.graph.sizevars.statically_known_equals
        if unit is None:
            return "taps"
        if equal(channel_stride, count * unit):
            return "channel_major"
        if equal(unit, product.channels * channel_stride):
            return "tap_major"
        return "taps"

    def _tap_unit(self) -> sympy.Expr | None:
        """Elements between consecutive taps of the weights, or None where taps are not in row-major order."""
        taps = [axis.taps for axis in self._product.axes]
        found = None
        for stride, dense, count in zip(
            self._weight_strides()[3], _row_strides(taps), taps, strict=True
        ):
            if count > 1:
                found = stride / dense if found is None else found
                if not V.graph.sizevars.statically_known_equals(stride, dense * found):
                    return None
        return found

    def _weight_strides(self) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr, Sequence[sympy.Expr]]:
        """Elements between neighbouring groups, outputs, channels and taps."""
        first, second, *taps = self._weights.get_layout().stride
        product = self._product
        if product.adjoint:
            return product.channels * first, second, first, taps
        return product.outputs * first, first, second, taps

    # Texts -------------------------------------------------------------------------------------------------

    def _axes(self) -> list[AxisText]:
        source = self._source.get_layout().stride[2:]
        taps = self._weight_strides()[3]
        return [
            self._axis(d, axis, source[d], taps[d]) for d, axis in enumerate(self._product.axes)
        ]

    def _axis(
        self, d: int, axis: Axis, element: sympy.Expr, weight_element: sympy.Expr
    ) -> AxisText:
        phases = axis.phases
        several = len(phases) > 1
        return AxisText(
            d=d,
            positions=self.extent(f"positions{d}", axis.positions),
            size=self.extent(f"size{d}", axis.size),
            source=self.extent(f"source{d}", axis.source),
            source_stride=axis.source_stride,
            source_step=axis.source_step,
            output_stride=axis.output_stride,
            tap_step=axis.tap_step,
            taps=f"taps{d}" if several else str(phases[0].taps),
            first_tap=f"first_tap{d}" if several else str(phases[0].first_tap),
            start=f"start{d}" if several else str(phases[0].start),
            element=self.extent(f"element{d}", element),
            weight_element=self.extent(f"weight_element{d}", weight_element),
            checked=axis.overhangs,
            ragged=several
            and not V.graph.sizevars.statically_known_multiple_of(axis.size, axis.output_stride),
        )

    def _phase_constants(self) -> list[str]:
        """Slang declarations of what depends on the residue class along each axis."""
        lines = []
        for d, axis in enumerate(self._product.axes):
            if axis.output_stride == 1:
                continue
            for name, values in (
                (f"taps{d}", [phase.taps for phase in axis.phases]),
                (f"first_tap{d}", [phase.first_tap for phase in axis.phases]),
                (f"start{d}", [phase.start for phase in axis.phases]),
            ):
                lines.append(f"const int {name} = {_lookup(f'residue{d}', values)};")
        return lines

    def _source_text(self, order: str) -> dict[str, Any]:
        layout = self._source.get_layout()
        channels = sympy.Integer(self._product.channels)
        multiple = V.graph.sizevars.statically_known_multiple_of
        text = operand_text(self, "source", self._source, self._accumulator)
        # Four channels of a pixel at once.
        vectors = (
            text["channel_stride"] == "1"
            and order == "taps"
            and not is_direct(self._config)
            and all(
                multiple(s, LANES)
                for s in (layout.offset, channels, layout.stride[0], *layout.stride[2:])
            )
        )
        return text | {"vectors": vectors}

    def _weights_text(self, order: str) -> dict[str, Any]:
        layout, dtype = self._weights.get_layout(), self._weights.get_dtype()
        group, outer, channel, taps = self._weight_strides()
        step = self._tap_unit() if order == "channel_major" else channel
        assert step is not None
        sizevars = V.graph.sizevars
        run, others = "none", [group, layout.offset, *(taps if order == "taps" else [])]
        if sizevars.statically_known_equals(step, 1):
            run = "k"
            others.append(outer)
        elif sizevars.statically_known_equals(outer, 1):
            run = "outer"
            others.append(step)
        scalar, vector = conversions(dtype, self._accumulator)
        return {
            "pointer": self.args.input(self._weights.get_name()),
            "storage": storage_type(dtype),
            "scalar": scalar,
            "vector": vector,
            "origin": self.extent("weights_origin", layout.offset),
            "group_stride": self.extent("weights_group", group),
            "outer_stride": self.extent("weights_outer", outer),
            "k_stride": self.extent("weights_step", step),
            "run": run,
            "aligned": run != "none"
            and all(sizevars.statically_known_multiple_of(s, LANES) for s in others),
        }


def _is_scattered(product: PatchProduct) -> bool:
    """Whether neighbouring columns are no consecutive elements of one image, so that each is stored alone."""
    if product.pixel_rows:
        return False
    image = sympy_product([axis.size for axis in product.axes])
    return product.phases > 1 or not V.graph.sizevars.statically_known_multiple_of(image, LANES)


def _row_strides(size: Sequence[int]) -> list[int]:
    strides = [1]
    for extent in reversed(size[1:]):
        strides.insert(0, strides[0] * extent)
    return strides


def _lookup(index: str, values: Sequence[int]) -> str:
    """A Slang expression for ``values[index]``."""
    if len(set(values)) == 1:
        return str(values[0])
    text = str(values[-1])
    for i, value in reversed(list(enumerate(values[:-1]))):
        text = f"select({index} == {i}, {value}, {text})"
    return text
