"""The same arguments in float64, for results that CPU eager itself rounds away.

In: arguments in any dtype. Out: arguments in float64. Forbidden: changing a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .placement import map_tensors, place, tensors_in

_NARROW = {torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.complex32}


def widened(arguments: Any) -> Any:
    """A CPU copy of `arguments` with float64 (complex128) instead of narrower floating dtypes, also
    where a dtype is an argument; None when there is nothing to widen."""
    if not any(tensor.dtype in _NARROW for tensor in tensors_in(arguments)):
        return None

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype not in _NARROW or tensor.layout != torch.strided:
            return tensor
        wide = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)
        return wide.requires_grad_(tensor.requires_grad)

    return _widen_dtypes(map_tensors(place(arguments, torch.device("cpu")), widen))


def attempt(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, or None for what CPU eager cannot compute in float64."""

    def quiet(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception:
            return None

    return quiet


def _widen_dtypes(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value in _NARROW:
        return torch.complex128 if value.is_complex else torch.float64
    if isinstance(value, dict):
        return {key: _widen_dtypes(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_widen_dtypes(item) for item in value)
    return value
