"""Convolutions keep channels_last: from their input or weight to their result and gradients, as on CUDA.

In: arguments of ATen's convolution operators. Out: the same operators, their results in the memory format of what
they were computed from. Forbidden: choosing a format that nobody asked for.

torch's shape functions give results of convolutions on devices other than its own in the default format, so the
copy into channels_last is written out here; it becomes the epilogue of the convolution's kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

_calling = threading.local()


def convolution(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Any:
    """`aten.convolution` whose result is channels_last where its input or its weight is."""
    wanted = _format(x, weight)
    if wanted is None or _is_inner_call():
        return NotImplemented
    return _inner_call(aten.convolution.default, x, weight, *rest).contiguous(memory_format=wanted)


def convolution_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any
) -> Any:
    """`aten.convolution_backward` whose gradients of input and weight are channels_last where either is."""
    wanted = _format(x, weight)
    if wanted is None or _is_inner_call():
        return NotImplemented
    of_input, of_weight, of_bias = _inner_call(
        aten.convolution_backward.default, grad, x, weight, *rest
    )
    gradients = [
        gradient if gradient is None else gradient.contiguous(memory_format=wanted)
        for gradient in (of_input, of_weight)
    ]
    return *gradients, of_bias


def _format(*tensors: torch.Tensor) -> torch.memory_format | None:
    """The channels_last format of the first tensor that has one and not the default format."""
    for tensor in tensors:
        wanted = _CHANNELS_LAST.get(tensor.dim())
        if (
            wanted is not None
            and tensor.is_contiguous(memory_format=wanted)
            and not tensor.is_contiguous()
        ):
            return wanted
    return None


def _is_inner_call() -> bool:
    return getattr(_calling, "inner", False)


def _inner_call(operator: Callable[..., Any], *args: Any) -> Any:
    """Call an operator that is being decomposed, as it is."""
    _calling.inner = True
    try:
        return operator(*args)
    finally:
        _calling.inner = False


KEEPING_FORMAT: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
}
