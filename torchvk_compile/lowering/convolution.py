"""Convolutions: aten.convolution and aten.convolution_backward, plain and transposed.

In: ATen convolutions of vk tensors. Out: template buffers whose kernels pointwise nodes fuse into.
Forbidden: Slang text; any change for other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import add_layout_constraint, lowerings, maybe_layout_constraints
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.functions import FloorDiv

from torchvk_compile.codegen.convolution import PatchKernel, PatchProduct
from torchvk_compile.codegen.convolution_config import (
    alternatives,
    choose_config,
    pays_to_turn_weights,
)
from torchvk_compile.codegen.convolution_geometry import adjoint_axis, forward_axis
from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.dtypes import require_supported
from torchvk_compile.codegen.gemm_config import TileConfig
from torchvk_compile.codegen.winograd import WinogradConfig, WinogradProduct
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.depthwise import is_depthwise, multiply_depthwise
from torchvk_compile.lowering.matmul import ACCUMULATORS, realize_operand
from torchvk_compile.lowering.winograd import candidate, multiply_winograd, winograd_product
from torchvk_compile.tuning.choice import chosen
from torchvk_compile.tuning.problem import Problem

aten = torch.ops.aten

_HINT = 1024
"""Stands for a size that is known only when the graph runs."""


def register_convolution() -> None:
    """Route the convolutions of vk tensors here; other devices keep Inductor's lowerings."""
    from torchvk_compile.lowering.registry import route

    _take_any_layout(aten.convolution.default)
    _take_any_layout(aten.convolution_backward.default)
    route(aten.convolution.default, _convolution)
    route(aten.convolution_backward.default, _convolution_backward)
    route_decomposition(aten.conv_tbc.default, _time_first)
    route_decomposition(aten.conv_tbc_backward.default, _time_first_gradients)


def _take_any_layout(overload: torch._ops.OpOverload) -> None:
    """Let vk tensors come in whatever layout they have, where Inductor would first copy them to the traced one.

    Traces say that convolutions of this device are contiguous; inside of a graph channels last stays channels last.
    """
    previous = maybe_layout_constraints(overload)
    if previous is None:
        return

    def constraint(node: torch.fx.Node, *args: Any, **kwargs: Any) -> Any:
        if args[0].get_device().type == "vk":
            return args, kwargs
        return previous(node, *args, **kwargs)

    add_layout_constraint(overload, constraint)


def _time_first(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0
) -> torch.Tensor:
    """aten.conv_tbc: one dimension, laid out as (time, batch, channels)."""
    images, kernel = x.permute(1, 2, 0), weight.permute(2, 1, 0)
    result = aten.convolution(images, kernel, bias, [1], [pad], [1], False, [0], 1)
    return result.permute(2, 0, 1).contiguous()


def _time_first_gradients(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images, kernel = x.permute(1, 2, 0), weight.permute(2, 1, 0)
    grad_images, grad_kernel, grad_bias = aten.convolution_backward(
        grad.permute(1, 2, 0),
        images,
        kernel,
        list(bias.shape),
        [1],
        [pad],
        [1],
        False,
        [0],
        1,
        [True] * 3,
    )
    return grad_images.permute(2, 0, 1), grad_kernel.permute(2, 1, 0), grad_bias


class Geometry:
    """The numbers of a convolution, made constants; one entry per spatial dimension.

    Args:
        weight: (first, second, *taps).
        stride, padding, dilation: as ATen takes them, one number or one per dimension.
        transposed: whether the wide side is the output.
        groups: as ATen takes it.
    """

    def __init__(
        self,
        weight: Any,
        stride: Sequence[Any],
        padding: Sequence[Any],
        dilation: Sequence[Any],
        transposed: bool,
        groups: Any,
    ) -> None:
        self.first, self.second, *self.taps = V.graph.sizevars.guard_int_seq(weight.get_size())
        self.stride = self._numbers(stride)
        self.padding = self._numbers(padding)
        self.dilation = self._numbers(dilation)
        self.transposed = transposed
        self.groups = int(V.graph.sizevars.guard_int(groups))

    def _numbers(self, values: Sequence[Any]) -> list[int]:
        numbers = [int(v) for v in V.graph.sizevars.guard_int_seq(values)]
        return numbers * len(self.taps) if len(numbers) == 1 else numbers

    @property
    def channels(self) -> tuple[int, int]:
        """Channels of one group on the narrow and on the wide side."""
        return self.first // self.groups, self.second

    def axes(
        self, wide: Sequence[sympy.Expr], narrow: Sequence[sympy.Expr], adjoint: bool
    ) -> tuple[Any, ...]:
        """`Axis` objects from the wide to the narrow side, or back for the adjoint."""
        make, sizes = (adjoint_axis, (wide, narrow)) if adjoint else (forward_axis, (narrow, wide))
        return tuple(map(make, *sizes, self.taps, self.stride, self.padding, self.dilation))

    def output_size(
        self, size: Sequence[sympy.Expr], output_padding: Sequence[Any]
    ) -> list[sympy.Expr]:
        """Spatial extents of the output for an input of spatial extents `size`."""
        reach = [d * (k - 1) for k, d in zip(self.taps, self.dilation, strict=True)]
        if self.transposed:
            extra = self._numbers(output_padding)
            return [
                (i - 1) * s - 2 * p + r + e + 1
                for i, s, p, r, e in zip(size, self.stride, self.padding, reach, extra, strict=True)
            ]
        return [
            FloorDiv(i + 2 * p - r - 1, s) + 1
            for i, s, p, r in zip(size, self.stride, self.padding, reach, strict=True)
        ]


def _convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: Any,
) -> Any:
    if len(x.get_size()) == len(weight.get_size()) - 1:
        batched = lowerings[aten.unsqueeze](x, 0)
        out = _convolution(
            batched, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return lowerings[aten.squeeze](out, 0)
    geometry = Geometry(weight, stride, padding, dilation, transposed, groups)
    x, weight = realize_operand(x), realize_operand(weight)
    size = geometry.output_size(x.get_size()[2:], output_padding)
    channels_last = is_channels_last(x) or is_channels_last(weight)
    if bias is not None:
        bias = realize_operand(bias)
    settings = (stride, padding, dilation, transposed, output_padding, groups)

    def problem() -> Problem:
        return Problem.of(aten.convolution.default, x.get_device(), x, weight, bias, *settings)

    return multiply_patches(
        "aten.convolution",
        geometry,
        x,
        weight,
        size,
        channels_last,
        problem,
        bias=bias,
        adjoint=transposed,
    )


def _convolution_backward(
    grad_output: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: Any,
    output_mask: Sequence[bool],
) -> Any:
    name = "aten.convolution_backward"
    settings = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)

    def problem_of(which: int) -> Callable[[], Problem]:
        """One of the gradients: 0 for the input, 1 for the weights."""
        mask = [which == i for i in range(3)]
        op, device = aten.convolution_backward.default, x.get_device()
        return lambda: Problem.of(op, device, gradient, x, weight, *settings, mask)

    geometry = Geometry(weight, stride, padding, dilation, transposed, groups)
    grad_x = grad_weight = grad_bias = None
    gradient = realize_operand(grad_output)
    if output_mask[0]:
        weights = realize_operand(weight)
        channels_last = is_channels_last(gradient) or is_channels_last(weights)
        size = x.get_size()[2:]
        grad_x = multiply_patches(
            name,
            geometry,
            gradient,
            weights,
            size,
            channels_last,
            problem_of(0),
            adjoint=not transposed,
        )
    if output_mask[1]:
        from torchvk_compile.lowering.convolution_weights import weight_gradient

        source = realize_operand(x)
        narrow, wide = (source, gradient) if transposed else (gradient, source)
        grad_weight = weight_gradient(name, geometry, narrow, wide, problem_of(1))
    if output_mask[2]:
        spatial = list(range(2, len(gradient.get_size())))
        grad_bias = lowerings[aten.sum](ir.TensorBox(gradient), [0, *spatial])
    return grad_x, grad_weight, grad_bias


def accumulator_of(op: str, x: ir.IRNode) -> torch.dtype:
    """The dtype that convolutions of `x` are summed in.

    Raises:
        UnsupportedOperatorError: for a dtype that torch's CPU kernels do not convolve either, or that the device lacks.
    """
    dtype, device = x.get_dtype(), x.get_device()
    accumulator = ACCUMULATORS.get(dtype)
    if accumulator is None:
        raise UnsupportedOperatorError(
            op, dtype=dtype, reason="there is no convolution of this dtype"
        )
    assert device is not None
    for needed in (dtype, accumulator):
        require_supported(needed, profile_of(device.index or 0), op)
    return accumulator


def is_empty(size: Sequence[Any]) -> bool:
    """Whether a tensor of this size certainly has no elements."""
    return any(V.graph.sizevars.statically_known_equals(extent, 0) for extent in size)


def zeros(like: ir.IRNode, size: Sequence[Any]) -> ir.TensorBox:
    """Zeros on the device and of the dtype of `like`."""
    return lowerings[aten.full](list(size), 0, dtype=like.get_dtype(), device=like.get_device())


def is_channels_last(node: ir.IRNode) -> bool:
    """Whether the channels of a batch of images are consecutive in memory, and pixels are not."""
    size, stride = node.get_size(), node.get_layout().stride
    sizevars = V.graph.sizevars
    if len(size) < 4 or not sizevars.statically_known_equals(stride[1], 1):
        return False
    # One channel, or one pixel: torch calls that contiguous.
    pixels = sympy_product(size[2:])
    return not any(sizevars.statically_known_equals(extent, 1) for extent in (size[1], pixels))


def multiply_patches(
    op: str,
    geometry: Geometry,
    source: ir.IRNode,
    weights: ir.IRNode,
    size: Sequence[sympy.Expr],
    channels_last: bool,
    problem: Callable[[], Problem],
    *,
    adjoint: bool,
    bias: ir.IRNode | None = None,
) -> ir.TensorBox:
    """A convolution from the wide to the narrow side, or back for the adjoint.

    Args:
        op: name of the operator, for errors.
        geometry: the convolution.
        source: the side that is read, (N, C, *spatial).
        weights: (first, second, *taps).
        size: spatial extents of the side that is computed.
        channels_last: layout of the result.
        problem: the operator's call.
        bias: one number per output channel.

    Returns:
        A tensor of size (N, channels, *size).
    """
    accumulator = accumulator_of(op, source)
    narrow, wide = geometry.channels
    outputs, channels = (wide, narrow) if adjoint else (narrow, wide)
    extents = source.get_size()[2:]
    wide_size, narrow_size = (size, extents) if adjoint else (extents, size)
    axes = geometry.axes(wide_size, narrow_size, adjoint)
    product = PatchProduct(
        axes=axes,
        adjoint=adjoint,
        batch=source.get_size()[0],
        groups=geometry.groups,
        channels=channels,
        outputs=outputs,
        pixel_rows=channels_last,
    )
    batch, all_outputs = product.batch, geometry.groups * outputs
    if is_empty([batch, all_outputs, *size]):
        return zeros(source, [batch, all_outputs, *size])
    if is_depthwise(geometry, channels):
        return multiply_depthwise(
            geometry, source, weights, size, accumulator, bias, adjoint=adjoint
        )
    winograd = winograd_product(
        geometry, source, size, adjoint=adjoint, channels_last=channels_last
    )
    profile, sizes = profile_of(source.get_device().index or 0), _sizes(product)
    config = _config(profile, sizes, winograd, accumulator, problem)
    if isinstance(config, WinogradConfig):
        assert winograd is not None
        return multiply_winograd(source, weights, winograd, config, bias)
    nbytes = _hint(sympy_product(weights.get_size())) * weights.get_dtype().itemsize
    if pays_to_turn_weights(profile, config, *sizes, nbytes):
        weights = _with_consecutive_outputs(weights, adjoint)
    result = _patch_output(source, weights, product, config, accumulator, bias)
    if channels_last:
        result = lowerings[aten.view](result, [batch, *size, all_outputs])
        return lowerings[aten.permute](result, [0, len(size) + 1, *range(1, len(size) + 1)])
    return lowerings[aten.view](result, [batch, all_outputs, *size])


def _sizes(product: PatchProduct) -> tuple[int, int, int, int]:
    """Products side by side, and each one's rows, columns and length of the sums, or hints of them."""
    pixels = _hint(product.pixels)
    m, n = (pixels, product.outputs) if product.pixel_rows else (product.outputs, pixels)
    k = product.channels
    for axis in product.axes:
        k *= max(phase.taps for phase in axis.phases)
    return product.groups * product.phases, m, n, k


def _hint(size: sympy.Expr) -> int:
    return V.graph.sizevars.optimization_hint(size, fallback=_HINT)


def _config(
    profile: Any,
    sizes: tuple[int, int, int, int],
    winograd: WinogradProduct | None,
    accumulator: torch.dtype,
    problem: Callable[[], Problem],
) -> TileConfig | WinogradConfig:
    def others() -> list[TileConfig | WinogradConfig]:
        method = [] if winograd is None else [candidate(profile, winograd)]
        return [*method, *alternatives(profile, *sizes, accumulator)]

    default: TileConfig | WinogradConfig = choose_config(profile, *sizes, accumulator)
    return chosen(default, others, problem)


def _patch_output(
    source: ir.IRNode,
    weights: ir.IRNode,
    product: PatchProduct,
    config: TileConfig,
    accumulator: torch.dtype,
    bias: ir.IRNode | None,
) -> Any:
    """The result in memory order, see `PatchProduct.output_size`."""
    dtype, size = source.get_dtype(), product.output_size
    epilogue = _adding_bias(bias, product, accumulator)
    split = config.split_k > 1
    layout = ir.FixedLayout(
        source.get_device(),
        accumulator if split else dtype,
        [sympy.Integer(config.split_k)] * split + size,
    )

    def make_kernel(
        output: ir.TemplateBuffer, hint_override: int | None = None
    ) -> tuple[PatchKernel, None]:
        a, b = output.inputs[:2]
        own = None if split else epilogue
        return PatchKernel(output, a, b, product, config, accumulator, own), None

    inputs = [source, weights] + [bias] * (bias is not None and not split)
    result = ir.TensorBox.create(ir.TemplateBuffer(layout, inputs, make_kernel))
    return finish_parts(result, dtype, epilogue) if split else result


def _with_consecutive_outputs(weights: ir.IRNode, adjoint: bool) -> ir.IRNode:
    """The weights with output channels consecutive in memory, unless either kind of channels is already."""
    first, second, *taps = weights.get_layout().stride
    if any(V.graph.sizevars.statically_known_equals(s, 1) for s in (first, second)):
        return weights
    channels = [1, 0] if adjoint else [0, 1]
    order = [*channels, *reversed(range(2, 2 + len(taps)))]
    return realize_operand(ir.ExternKernel.require_stride_order(ir.TensorBox(weights), order))


def finish_parts(
    parts: ir.TensorBox, dtype: torch.dtype, epilogue: Callable[..., Any] | None
) -> ir.TensorBox:
    """Add up partial sums along the first dimension, then what the kernel would have done with the whole."""
    total = lowerings[aten.sum](parts, [0])
    accumulator = total.get_dtype()
    load = total.make_loader()

    def finished(indices: Sequence[sympy.Expr]) -> Any:
        value = load(indices)
        if epilogue is not None:
            value = epilogue(value, indices)
        return ops.to_dtype(value, dtype, src_dtype=accumulator) if dtype != accumulator else value

    return ir.Pointwise.create(
        device=total.get_device(), dtype=dtype, inner_fn=finished, ranges=total.get_size()
    )


def _adding_bias(
    bias: ir.IRNode | None, product: PatchProduct, accumulator: torch.dtype
) -> Callable[..., Any] | None:
    if bias is None:
        return None
    load = ir.TensorBox(bias).make_loader()

    def epilogue(value: Any, indices: Sequence[sympy.Expr]) -> Any:
        group, channel = indices[1:3]
        return ops.add(value, ops.to_dtype(load([group * product.outputs + channel]), accumulator))

    return epilogue
