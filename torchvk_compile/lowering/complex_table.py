"""The table of rules for complex numbers, and what all rules share.

In: ATen operators on complex tensors. Out: for each a function that computes the same from real tensors, written with
torch functions. Forbidden: Inductor's IR; the graph around an operator.

A complex value is a *pair*: its real and its imaginary part, two tensors of the same real dtype. Rules take and return
torch's complex tensors, so that any rule can be tried on the CPU beside the operator itself. Inside a rule
`parts` opens a tensor and `join` closes a pair; between two operators `complex_graph` lets both vanish.

torch has such formulas itself (`torch._subclasses.complex_tensor`). They take the product of many numbers through
angles, divide and take roots without regard to overflow, and copy every view, so they are not used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch

from torchvk_compile.lowering.interleave import interleave

Real: TypeAlias = torch.Tensor | float
"""A part: a real tensor, or a number where the other part of its pair is a tensor."""

Pair: TypeAlias = tuple[Any, Any]
"""Real and imaginary part, each a `Real`."""

RULES: dict[torch._ops.OpOverload, Callable[..., Any]] = {}
"""Rules by operator; they hold where a tensor or number among the arguments or results is complex."""

REAL_DTYPES = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The dtype of the parts of a complex dtype."""

COMPLEX_DTYPES = {real: whole for whole, real in REAL_DTYPES.items()}
"""The complex dtype whose parts have a real dtype."""


def rule(
    *operators: torch._ops.OpOverload | torch._ops.OpOverloadPacket,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as the rule of operators; of a packet, all overloads that write no argument."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for operator in operators:
            for overload in functional_overloads(operator):
                RULES[overload] = function
        return function

    return enter


def functional_overloads(
    operator: torch._ops.OpOverload | torch._ops.OpOverloadPacket,
) -> Iterable[torch._ops.OpOverload]:
    """The overload itself, or a packet's overloads on tensors that write no argument."""
    if isinstance(operator, torch._ops.OpOverload):
        return (operator,)
    overloads = (getattr(operator, name) for name in operator.overloads())
    return [o for o in overloads if not o._schema.is_mutable and "Tensor" in str(o._schema)]


def is_complex(value: Any) -> bool:
    """Whether a tensor, a number or a dtype is complex."""
    if isinstance(value, torch.Tensor):
        return value.dtype.is_complex
    return isinstance(value, complex) or (isinstance(value, torch.dtype) and value.is_complex)


def parts(value: Any, dtype: torch.dtype | None = None) -> Pair:
    """The parts of a tensor or number.

    Args:
        value: of any dtype; a real one has the imaginary part 0.0.
        dtype: real dtype that the parts are converted to; default is the one they have.
    """
    if not isinstance(value, torch.Tensor):
        return (value.real, value.imag) if isinstance(value, complex) else (value, 0.0)
    if not value.dtype.is_complex:
        return value if dtype is None else value.to(dtype), 0.0
    numbers = torch.view_as_real(value)
    real, imag = torch.select(numbers, -1, 0), torch.select(numbers, -1, 1)
    return (real, imag) if dtype is None else (real.to(dtype), imag.to(dtype))


def join(pair: Pair) -> torch.Tensor:
    """The complex tensor with these parts, broadcast against each other."""
    real, imag = pair
    if not isinstance(imag, torch.Tensor):
        imag = torch.full_like(real, imag)
    elif not isinstance(real, torch.Tensor):
        real = torch.full_like(imag, real)
    if real.shape != imag.shape:
        real, imag = torch.broadcast_tensors(real, imag)
    return torch.view_as_complex(interleave(real, imag))


def real_dtype(*values: Any) -> torch.dtype:
    """Dtype of the parts of what operands promote to, by torch's rules."""
    promoted = values[0].dtype if len(values) == 1 else torch.result_type(*values[:2])
    for value in values[2:]:
        if isinstance(value, torch.Tensor):
            promoted = torch.promote_types(promoted, value.dtype)
        elif isinstance(value, complex) and not promoted.is_complex:
            promoted = COMPLEX_DTYPES.get(promoted, torch.complex64)
    return REAL_DTYPES.get(promoted, promoted)


def elementwise(
    *operators: torch._ops.OpOverload | torch._ops.OpOverloadPacket, returns_real: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function of pairs as the rule of operators of one to three operands.

    Args:
        returns_real: its result is a tensor as it is, not a pair.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(*operands: Any) -> torch.Tensor:
            dtype = real_dtype(*operands)
            result = function(*(parts(operand, dtype) for operand in operands))
            return result if returns_real else join(result)

        apply.__name__ = function.__name__
        rule(*operators)(apply)
        return function

    return enter
