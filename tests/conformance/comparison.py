"""Whether a result is torch's.

In: results of CPU eager and of vk, a tolerance. Out: nothing, or `Mismatch` that says what
differs. Forbidden: rounding differences away, except by the tolerance given.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

from .tolerances import NOTHING_MORE, Allowed, Tolerance, default

Exact = Callable[[], Any]
"""Computes the expected results again, in float64."""


class Measure(Enum):
    """What a result is right by: the usual tolerance; or where that is exceeded, being as near to float64 as CPU
    eager's; or besides, the tolerance of other tests (`Allowed.elsewhere`)."""

    USUAL = "usual"
    EXACT = "exact"
    ELSEWHERE = "elsewhere"


class Mismatch(AssertionError):
    """A result that differs from CPU eager's, with the place and the largest difference."""


def compare(actual: Any, expected: Any, allowed: Allowed, exact: Exact | None = None) -> Measure:
    """Compare results of any structure.

    Args:
        actual: from vk; moved to the CPU here.
        expected: from CPU eager.
        allowed: what the entry allows beyond torch's tolerance for each tensor's dtype.
        exact: the same computation in float64. A floating element also is right when it is no further
            from that result than CPU eager's element is, or than the worst of CPU eager's tensor, in units of
            the tolerance.

    Returns:
        The first measure by which all elements are right.

    Raises:
        Mismatch: when something differs.
    """
    try:
        _compare(actual, expected, allowed.usual, None, "result")
        return Measure.USUAL
    except Mismatch as error:
        difference = error
    precise = exact() if exact is not None else None
    if precise is not None:
        try:
            _compare(actual, expected, allowed.usual, precise, "result")
            return Measure.EXACT
        except Mismatch as error:
            difference = error
    if allowed.elsewhere == NOTHING_MORE.elsewhere:
        raise difference
    _compare(actual, expected, allowed.elsewhere, precise, "result")
    return Measure.ELSEWHERE


def _compare(actual: Any, expected: Any, allowed: Tolerance, exact: Any, path: str) -> None:
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


def _item(values: Any, key: Any) -> Any:
    try:
        return None if values is None else values[key]
    except (IndexError, KeyError, TypeError):
        return None


def _compare_tensors(
    actual: Any,
    expected: torch.Tensor,
    allowed: Tolerance,
    exact: Any,
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
    reference = None
    if isinstance(exact, torch.Tensor) and exact.shape == expected.shape:
        reference = _dense(exact)
    _compare_values(_dense(actual), _dense(expected), tolerance, reference, path)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _compare_values(
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    exact: torch.Tensor | None,
    path: str,
) -> None:
    right = _close(actual, expected, tolerance)
    if exact is not None and not bool(right.all()):
        # Where `expected` is no number although there is one, that one is right.
        lost = exact.isfinite() & ~expected.isfinite()
        near = _no_further(_wide(actual), _wide(expected), _wide(exact), tolerance)
        right |= torch.where(lost, _close(actual, exact.to(expected.dtype), tolerance), near)
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
        + (f" (in float64 {exact[place].item()!r})" if exact is not None else "")
    )


def _close(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    if not (expected.is_floating_point() or expected.is_complex()):
        return actual == expected
    return torch.isclose(
        _wide(actual), _wide(expected), rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True
    )


def _no_further(
    actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance
) -> torch.Tensor:
    """Where `actual` is as near to `exact` as `expected` is there, or at its worst, in units of the tolerance."""
    unit = tolerance.atol + tolerance.rtol * exact.abs()
    mine, theirs = ((tensor - exact).abs() / unit for tensor in (actual, expected))
    worst = theirs.nan_to_num(nan=0.0, posinf=0.0).max()
    return (mine <= theirs) | (mine <= worst)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} {value.dtype}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)
