"""Operators with several right results, and what makes one right.

In: an operator's name. Out: the checks that define its results. Forbidden: a check that any result
passes, except for the elements of uninitialised memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import draws, factorizations, order
from .comparison import Mismatch
from .placement import tensors_in


@dataclass(frozen=True)
class Call:
    """An operator's name and its arguments, on the CPU and as they were before the call."""

    name: str
    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Check = Callable[[Call, Any, Any], None]

_CHECKS: dict[str, Check] = {
    **order.CHECKS,
    **factorizations.CHECKS,
    **draws.CHECKS,
}

_SCALING = (
    "nn_functional_dropout",
    "nn_functional_dropout2d",
    "nn_functional_dropout3d",
    "nn_functional_rrelu",
)


def is_drawn(call: Call) -> bool:
    """Whether results of `call` depend on random numbers: another computation of them is no reference."""
    if call.name in ("svd_lowrank", "pca_lowrank"):
        return True
    return call.name in draws.CHECKS and check_for(call) is not None


def check_for(call: Call) -> Check | None:
    """What decides on results of `call` that are not CPU eager's; None when nothing may."""
    drawn = draws.DRAWS_IF.get(call.name)
    if drawn is not None and not drawn(call):
        return None
    return _CHECKS.get(call.name)


def check_gradients(
    call: Call,
    outputs: list[Any],
    cotangents: list[Any],
    gradients: list[Any],
    expected: list[Any],
) -> bool:
    """Check gradients that depend on a draw, or on which of equal elements was taken.

    Returns:
        Whether the operator is such a one; else nothing was checked.

    Raises:
        Mismatch: when the gradients do not belong to the outputs.
    """
    tied = order.GRADIENT_CHECKS.get(call.name)
    if tied is not None:
        tied(call, expected, gradients)
        return True
    if call.name in ("svd_lowrank", "pca_lowrank") and factorizations.truncates(call):
        draws.check_finite(call, expected, gradients)
        return True
    if not is_drawn(call):
        return False
    if [gradient is None for gradient in gradients] != [other is None for other in expected]:
        raise Mismatch("other inputs have gradients")
    if call.name in _SCALING:
        draws.check_scaling_gradient(call, outputs, cotangents, gradients)
    else:
        draws.check_form(call, list(tensors_in(expected)), list(tensors_in(gradients)))
    return True
