"""Operators that eager PyTorch writes as one kernel on GPUs, as formulas of operators with lowerings.

In: arguments of ATen operators, as tensors. Out: their results. Forbidden: device work; anything but tracing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch._refs

from torchvk_compile import torch_compat
from torchvk_compile.lowering import optimizer_steps
from torchvk_compile.lowering.bit_views import view_dtype
from torchvk_compile.lowering.transformer_layers import TRANSFORMER_LAYERS

aten = torch.ops.aten

_MaybeTensor: TypeAlias = torch.Tensor | None


def _accumulated(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in the precision in which gates are computed: float32 for 16-bit floats."""
    half = (torch.float16, torch.bfloat16)
    return tuple(t.float() if t.dtype in half else t for t in tensors)


def _gates(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, biases: tuple[_MaybeTensor, _MaybeTensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    given, hidden = _accumulated(input_gates, hidden_gates)
    for_given, for_hidden = biases
    if for_given is not None and for_hidden is not None:
        given, hidden = given + for_given, hidden + for_hidden
    return given, hidden


# LSTM: gates stand in the order i, f, g, o ------------------------------------------------------------------


def lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    input_bias: _MaybeTensor = None,
    hidden_bias: _MaybeTensor = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One step of an LSTM (formulas: torch.nn.LSTM).

    Args:
        input_gates, hidden_gates: ``[B, 4H]``, the two products with the weights.
        cx: cell state, ``[B, H]``.
        input_bias, hidden_bias: ``[4H]``.

    Returns:
        Hidden state and cell state, ``[B, H]``, and the activated gates, ``[B, 4H]``, for the backward pass.
    """
    given, hidden = _gates(input_gates, hidden_gates, (input_bias, hidden_bias))
    i, f, g, o = (given + hidden).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    hy = o * cy.tanh()
    gates = torch.cat([i, f, g, o], 1)
    return hy.to(cx.dtype), cy.to(cx.dtype), gates.to(cx.dtype)


def lstm_cell_backward(
    grad_hy: _MaybeTensor,
    grad_cy: _MaybeTensor,
    cx: torch.Tensor,
    cy: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor, _MaybeTensor]:
    """Gradients of `lstm_cell`: of the gates before activation, of the cell state, of either bias."""
    i, f, g, o = _accumulated(*workspace.chunk(4, 1))
    before, after = _accumulated(cx, cy)
    zeros = torch.zeros_like(after)
    from_hidden = zeros if grad_hy is None else grad_hy
    from_cell = zeros if grad_cy is None else grad_cy
    bent = after.tanh()
    cell = from_hidden * o * (1 - bent * bent) + from_cell
    gates = [
        cell * g * (i * (1 - i)),
        cell * before * (f * (1 - f)),
        cell * i * (1 - g * g),
        from_hidden * bent * (o * (1 - o)),
    ]
    grad_gates = torch.cat(gates, 1)
    grad_bias = grad_gates.sum(0).to(workspace.dtype) if has_bias else None
    return grad_gates.to(workspace.dtype), (cell * f).to(cx.dtype), grad_bias


# GRU: gates stand in the order r, z, n ----------------------------------------------------------------------


def gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: _MaybeTensor = None,
    hidden_bias: _MaybeTensor = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of a GRU (formulas: torch.nn.GRU).

    Args:
        input_gates, hidden_gates: ``[B, 3H]``, the two products with the weights.
        hx: hidden state, ``[B, H]``.
        input_bias, hidden_bias: ``[3H]``.

    Returns:
        Hidden state, ``[B, H]``, and what the backward pass needs, ``[B, 5H]``: r, z, n, the hidden state before,
        and the hidden half of n before its reset gate.
    """
    given, hidden = _gates(input_gates, hidden_gates, (input_bias, hidden_bias))
    given_r, given_z, given_n = given.chunk(3, 1)
    hidden_r, hidden_z, hidden_n = hidden.chunk(3, 1)
    r, z = (given_r + hidden_r).sigmoid(), (given_z + hidden_z).sigmoid()
    n = (given_n + r * hidden_n).tanh()
    (before,) = _accumulated(hx)
    workspace = torch.cat([r, z, n, before, hidden_n], 1)
    return (n + z * (before - n)).to(hx.dtype), workspace.to(hx.dtype)


def gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, _MaybeTensor, _MaybeTensor]:
    """Gradients of `gru_cell`: of both products, of the hidden state, of both biases."""
    r, z, n, before, hidden_n = _accumulated(*workspace.chunk(5, 1))
    (grad,) = _accumulated(grad_hy)
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_z = grad * (before - n) * (z * (1 - z))
    grad_r = grad_n * hidden_n * (r * (1 - r))
    given = torch.cat([grad_r, grad_z, grad_n], 1)
    hidden = torch.cat([grad_r, grad_z, grad_n * r], 1)
    dtype = workspace.dtype
    biases = (given.sum(0).to(dtype), hidden.sum(0).to(dtype)) if has_bias else (None, None)
    return given.to(dtype), hidden.to(dtype), (grad * z).to(dtype), *biases


# Weight normalisation ---------------------------------------------------------------------------------------


def weight_norm_backward(
    grad_w: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ``w = v * (g / norms)`` for `v` and `g`, where `norms` are those of `v` along all but `dim`.

    Source: Salimans and Kingma, 2016, "Weight Normalization", equation 3.
    """
    grad, direction, length, size = _accumulated(grad_w, v, g, norms)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (grad * direction).sum(others, keepdim=True)
    grad_v = length / size * (grad - direction * (along / (size * size)))
    return grad_v.to(v.dtype), (along / size).to(g.dtype)


def assert_async(condition: torch.Tensor) -> None:
    """The check without a message, which would be taken for an operator without effect; ATen's words."""
    aten._assert_async.msg(condition, "Expected Tensor with single nonzero value, but got zero")


# What torch's own decompositions leave open ------------------------------------------------------------------


def uniform(
    x: torch.Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None
) -> torch.Tensor:
    """Random numbers of [low, high) in the form of `x`: what `uniform_` becomes without mutation."""
    return torch.rand_like(x) * (high - low) + low


def normal(
    x: torch.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None
) -> torch.Tensor:
    """Normally distributed numbers in the form of `x`: what `normal_` becomes without mutation."""
    return torch.randn_like(x) * std + mean


def geometric(x: torch.Tensor, p: float, *, generator: Any = None) -> torch.Tensor:
    """Trials up to the first success, in the form of `x`: what `geometric_` becomes without mutation.

    Torch's own formula draws in the dtype of `x`, where all integers of [0, 1) are 0.
    """
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    numbers = torch.rand_like(x, dtype=torch.float32)
    return (torch.floor(torch.log1p(-numbers) / math.log1p(-p)) + 1).to(x.dtype)


def bernoulli_each(x: torch.Tensor, p: torch.Tensor, *, generator: Any = None) -> torch.Tensor:
    """Zeros and ones in the form of `x`, with a probability for every element: `bernoulli_` without mutation."""
    message = "bernoulli expects probabilities in [0, 1]"
    aten._assert_async.msg(((p >= 0) & (p <= 1)).all(), message)
    return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


def bernoulli(p: torch.Tensor, *, generator: Any = None) -> torch.Tensor:
    """Zeros and ones with the probabilities `p`, in its dtype."""
    return bernoulli_each(p, p)


def bernoulli_of_number(x: torch.Tensor, p: float, *, generator: Any = None) -> torch.Tensor:
    """Zeros and ones in the form of `x`, all with one probability."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


def check_deviation(std: float) -> None:
    """Raise RuntimeError for a standard deviation below 0, in torch's words."""
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def normal_around(
    mean: torch.Tensor | float, std: torch.Tensor | float, *, generator: Any = None
) -> torch.Tensor:
    """Normally distributed numbers, `mean` and `std` for every element; one of the two may be a number."""
    if isinstance(std, torch.Tensor):
        message = "normal expects all elements of std >= 0.0"
        aten._assert_async.msg((std >= 0).all(), message)
    else:
        check_deviation(std)
    like = torch.broadcast_tensors(*(t for t in (mean, std) if isinstance(t, torch.Tensor)))[0]
    return torch.randn_like(like, memory_format=torch.contiguous_format) * std + mean


def index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Slices of `x` along `dim`; unlike in ``x[index]`` a negative number is out of range, as in eager PyTorch."""
    if x.dim() == 0:
        return torch.gather(x, 0, index.long().reshape(()))
    places = [1] * x.dim()
    places[dim] = -1
    size = list(x.shape)
    size[dim] = index.numel()
    return torch.gather(x, dim, index.long().view(places).expand(size))


def index_fill(
    x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor | complex
) -> torch.Tensor:
    """Slices of `x` along `dim` set to one value; unlike in `index_copy` negative numbers count from the end."""
    length = x.shape[dim] if x.dim() else 1
    return torch._refs.index_fill(x, dim, torch.where(index < 0, index + length, index), value)


def cumsum_of_a_number(
    x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Without a dimension there is nothing to add, and Inductor's simplification of constant sums looks for one."""
    if x.dim():
        return NotImplemented
    whole = not x.is_floating_point() and not x.is_complex()
    return x.to(dtype or (torch.int64 if whole else x.dtype), copy=True)


def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Elements of `x` by their place in row-major order; a 0-d index stays on the device."""
    return aten.index.Tensor(x.reshape(-1), [index])


def shrink_backward(grad: torch.Tensor, x: torch.Tensor, lambd: float) -> torch.Tensor:
    """Gradient of softshrink and of hardshrink: none where `x` was shrunk to 0."""
    return torch.where((x >= -lambd) & (x <= lambd), 0, grad)


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`x` with its selected elements replaced by those of `source`, one after the other.

    Inductor's own formula reads behind a source that has too few elements; here that is an index out of range.
    """
    x, mask = torch.broadcast_tensors(x, mask)
    if source.numel() == 0:
        message = "masked_scatter: the mask selects elements, and the source has none"
        aten._assert_async.msg(torch.logical_not(mask.any()), message)
        return x.clone()
    number = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    place = torch.where(mask.reshape(-1), number, 0)
    return torch.where(mask, source.reshape(-1)[place].reshape(mask.shape), x)


def searchsorted_number(
    sorted_sequence: torch.Tensor, number: float, **options: Any
) -> torch.Tensor:
    """Where one number belongs in a sorted sequence ``[N]``; Inductor's own formula makes it a tensor of the host."""
    values = _beside(number, sorted_sequence)
    return torch.searchsorted(sorted_sequence.to(values.dtype), values, **options)[0]


def bucketize_number(number: float, boundaries: torch.Tensor, **options: Any) -> torch.Tensor:
    """Between which boundaries ``[N]`` one number lies; see `searchsorted_number`."""
    values = _beside(number, boundaries)
    return torch.bucketize(values, boundaries.to(values.dtype), **options)[0]


def _beside(number: float, sequence: torch.Tensor) -> torch.Tensor:
    """The number as a tensor ``[1]`` of the dtype that both are compared in."""
    dtype = torch.result_type(sequence, number)
    return torch.full((1,), number, dtype=dtype, device=sequence.device)


DECOMPOSITIONS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    # The gradient of a step function is a tensor without memory, which only ATen's CPU and CUDA know.
    aten._efficientzerotensor.default: torch.zeros,
    aten._assert_async.default: assert_async,
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: gru_cell,
    aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
    **optimizer_steps.FUNCTIONAL,
    **TRANSFORMER_LAYERS,
    aten.uniform.default: uniform,
    aten.normal_functional.default: normal,
    aten.geometric.default: geometric,
    aten.bernoulli.Tensor: bernoulli_each,
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli_of_number,
    aten.normal.Tensor_Tensor: normal_around,
    aten.normal.Tensor_float: normal_around,
    aten.normal.float_Tensor: normal_around,
    aten.index_select.default: index_select,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.cumsum.default: cumsum_of_a_number,
    aten.view.dtype: view_dtype,
    aten.take.default: take,
    aten.masked_scatter.default: masked_scatter,
    aten.searchsorted.Scalar: searchsorted_number,
    aten.bucketize.Scalar: bucketize_number,
    aten.softshrink_backward.default: shrink_backward,
    aten.hardshrink_backward.default: shrink_backward,
}

KEEPING_GRADIENTS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.softshrink.default: torch_compat.with_own_gradient(aten.softshrink.default),
}
"""Operators that torch takes apart into a formula whose gradient is another than theirs next to NaN and infinities."""
