"""What is tuned: one operator call, as shapes, strides and dtypes.

In: an operator and arguments in Inductor's IR, while it is lowered. Out: a `Problem`, in numbers only. Forbidden:
holding on to IR or tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

_HINT = 1024
"""Stands for a size that is known only when the graph runs and has no hint."""


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """A tensor's geometry in elements; `dtype` without the ``torch.`` prefix."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def extent(self) -> int:
        """Elements from the first to the last."""
        if 0 in self.size:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))

    def __str__(self) -> str:
        dense = self.stride == torch.empty(self.size, device="meta").stride()
        strides = "" if dense else f" strides {list(self.stride)}"
        return f"{self.dtype}{list(self.size)}{strides}"


@dataclasses.dataclass(frozen=True)
class Problem:
    """One call of an operator.

    Attributes:
        operator: its overload.
        arguments: positional, with a `TensorSpec` for every tensor.
        keywords: by name, likewise.
        device_index: of the vk device.
    """

    operator: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    device_index: int

    @staticmethod
    def of(
        operator: torch._ops.OpOverload, device: torch.device, *arguments: Any, **keywords: Any
    ) -> Problem:
        """A call with IR for tensors and expressions for sizes: at their hints."""
        return Problem(
            operator,
            tuple(_in_numbers(value) for value in arguments),
            tuple((name, _in_numbers(value)) for name, value in sorted(keywords.items())),
            device.index or 0,
        )

    def __str__(self) -> str:
        values = [*self.arguments, *(f"{name}={_text(value)}" for name, value in self.keywords)]
        return f"{self.operator}({', '.join(map(_text, values))})"

    def call(self, make: Callable[[TensorSpec], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with ``make(spec)`` for every tensor."""

        def made(value: Any) -> Any:
            if isinstance(value, TensorSpec):
                return make(value)
            return [made(item) for item in value] if isinstance(value, tuple) else value

        return tuple(map(made, self.arguments)), {name: made(v) for name, v in self.keywords}


def _in_numbers(value: Any) -> Any:
    if isinstance(value, (ir.IRNode, ir.TensorBox)):
        return _spec(value)
    if isinstance(value, (list, tuple)):
        return tuple(_in_numbers(item) for item in value)
    if isinstance(value, sympy.Expr):
        hint = V.graph.sizevars.optimization_hint(value, fallback=_HINT)
        return float(hint) if isinstance(hint, (float, sympy.Float)) else int(hint)
    return value


def _spec(node: Any) -> TensorSpec:
    """Of an expression that no buffer holds yet, as if it were contiguous."""
    size = [_in_numbers(sympy.sympify(extent)) for extent in node.get_size()]
    layout = node.maybe_get_layout() if hasattr(node, "maybe_get_layout") else None
    if layout is None:
        stride = list(torch.empty(size, device="meta").stride())
    else:
        stride = [_in_numbers(sympy.sympify(step)) for step in layout.stride]
    dtype = str(node.get_dtype()).removeprefix("torch.")
    return TensorSpec(tuple(size), tuple(stride), dtype)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)
