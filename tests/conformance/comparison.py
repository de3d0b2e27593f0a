"""Whether a result is torch's.

In: results of CPU eager and of vk, a tolerance. Out: nothing, or `Mismatch` that says what
differs. Forbidden: rounding differences away, except by the tolerance given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .tolerances import Tolerance, default

Exact = Callable[[int], Any]
"""Computes the expected results again, in float64: draw 0 from the arguments, the others from
arguments that are off by half a unit in their last place (see `precision.widened`)."""

_DRAWS = 4
_STABLE = 8.0
"""A stable method's error, in errors that rounding the arguments makes already; a row that is summed element by
element loses that much. For float32 only: narrower numbers are computed in float32 and rounded once."""


class Mismatch(AssertionError):
    """A result that differs from CPU eager's, with the place and the largest difference."""


def compare(actual: Any, expected: Any, allowed: Tolerance, exact: Exact | None = None) -> bool:
    """Compare results of any structure.

    Args:
        actual: from vk; moved to the CPU here.
        expected: from CPU eager.
        allowed: what the entry allows beyond torch's tolerance for each tensor's dtype.
        exact: the same computation in float64. A floating element also is right when it is within
            the tolerance of that result, or no further from it than CPU eager is. Where the arguments'
            rounding alone moves that result, it may be off by `_STABLE` times as much.

    Returns:
        Whether `exact` was needed.

    Raises:
        Mismatch: when something differs.
    """
    try:
        _compare(actual, expected, allowed, None, "result")
        return False
    except Mismatch:
        precise = exact(0) if exact is not None else None
        if exact is None or precise is None:
            raise
    try:
        _compare(actual, expected, allowed, [precise], "result")
    except Mismatch:
        moved = [exact(draw) for draw in range(1, _DRAWS + 1)]
        if any(result is None for result in moved):
            raise
        _compare(actual, expected, allowed, [precise, *moved], "result")
    return True


def _compare(
    actual: Any, expected: Any, allowed: Tolerance, exact: Sequence[Any] | None, path: str
) -> None:
    if isinstance(expected, torch.Tensor):
        _compare_tensors(actual, expected, allowed, exact, path)
    elif isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            raise Mismatch(f"{path}: {_describe(actual)}, expected {_describe(expected)}")
        for i, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
            _compare(mine, theirs, allowed, _item(exact, i), f"{path}[{i}]")
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or actual.keys() != expected.keys():
            raise Mismatch(f"{path}: {_describe(actual)}, expected {_describe(expected)}")
        for key, theirs in expected.items():
            _compare(actual[key], theirs, allowed, _item(exact, key), f"{path}[{key!r}]")
    elif isinstance(expected, float) and isinstance(actual, float):
        wide = torch.tensor([actual, expected], dtype=torch.float64)
        _compare_values(wide[0], wide[1], default(torch.float32), None, path)
    elif actual != expected or type(actual) is not type(expected):
        raise Mismatch(f"{path}: {actual!r}, expected {expected!r}")


def _item(values: Sequence[Any] | None, key: Any) -> Sequence[Any] | None:
    try:
        return None if values is None else [value[key] for value in values]
    except (IndexError, KeyError, TypeError):
        return None


def _compare_tensors(
    actual: Any,
    expected: torch.Tensor,
    allowed: Tolerance,
    exact: Sequence[Any] | None,
    path: str,
) -> None:
    if not isinstance(actual, torch.Tensor):
        raise Mismatch(f"{path}: {_describe(actual)}, expected {_describe(expected)}")
    for aspect in ("dtype", "shape", "layout"):
        mine, theirs = getattr(actual, aspect), getattr(expected, aspect)
        if mine != theirs:
            raise Mismatch(f"{path}: {aspect} {mine}, expected {theirs}")
    tolerance = default(expected.dtype).at_least(allowed.rtol, allowed.atol)
    if not (expected.is_floating_point() or expected.is_complex()):
        tolerance = Tolerance(0.0, 0.0)
    reference = exact
    if exact is not None and any(
        not isinstance(result, torch.Tensor) or result.shape != expected.shape for result in exact
    ):
        reference = None
    _compare_values(_dense(actual), _dense(expected), tolerance, reference, path)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _compare_values(
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    exact: Sequence[torch.Tensor] | None,
    path: str,
) -> None:
    right = _close(actual, expected, tolerance)
    if exact is not None and not bool(right.all()):
        wide = [_wide(_dense(result)) for result in exact]
        right |= _close(actual, _dense(exact[0]).to(expected.dtype), tolerance)
        right |= (_wide(actual) - wide[0]).abs() <= (_wide(expected) - wide[0]).abs()
        if expected.dtype is torch.float32 and len(exact) > 1:
            right |= _stable(actual, wide, tolerance)
    if bool(right.all()):
        return
    wrong = ~right
    place = tuple(int(i) for i in wrong.nonzero()[0]) if wrong.dim() else ()
    difference = (_wide(actual) - _wide(expected)).abs()
    largest = difference[wrong].nan_to_num(nan=float("inf")).max().item()
    raise Mismatch(
        f"{path} {tuple(expected.shape)} {str(expected.dtype).removeprefix('torch.')}: "
        f"{int(wrong.sum())} of {wrong.numel()} elements differ, by {largest:.4g} at most; "
        f"at {place} {actual[place].item()!r}, expected {expected[place].item()!r}"
        + (f" (in float64 {exact[0][place].item()!r})" if exact is not None else "")
    )


def _close(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    if not (expected.is_floating_point() or expected.is_complex()):
        return actual == expected
    return torch.isclose(
        _wide(actual), _wide(expected), rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True
    )


def _stable(
    actual: torch.Tensor, exact: Sequence[torch.Tensor], tolerance: Tolerance
) -> torch.Tensor:
    """Where `actual` is as near to the first of `exact` as arguments that are rounded allow."""
    spread = torch.stack([(moved - exact[0]).abs() for moved in exact[1:]]).amax(0)
    allowed = tolerance.atol + tolerance.rtol * exact[0].abs() + _STABLE * spread
    return (_wide(actual) - exact[0]).abs() <= allowed


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} {value.dtype}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)
