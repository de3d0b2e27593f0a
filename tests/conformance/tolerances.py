"""How close is right: torch's tolerances, wider only where its databases are so for CUDA.

In: an entry of a database and a dtype. Out: (rtol, atol). Forbidden: numbers of our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_COMPARING_TESTS = (
    ("TestCommon", "test_compare_cpu"),
    ("TestInductorOpInfo", "test_comprehensive"),
)
"""The tests in torch that compare an accelerator, or compiled code, with eager results."""


@dataclass(frozen=True)
class Tolerance:
    """|actual - expected| <= atol + rtol * |expected|."""

    rtol: float
    atol: float

    def at_least(self, rtol: float, atol: float) -> Tolerance:
        return Tolerance(max(self.rtol, rtol), max(self.atol, atol))


def default(dtype: torch.dtype) -> Tolerance:
    """`torch.testing.assert_close`'s own tolerance for a dtype."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    return Tolerance(rtol, atol)


def overrides(info: Any, dtype: torch.dtype) -> Tolerance:
    """What an entry of op_db or module_db allows on CUDA beyond the defaults.

    Args:
        info: an OpInfo or ModuleInfo.
        dtype: dtype of the case.
    """
    tolerance = Tolerance(0.0, 0.0)
    for decorator in _active(info.decorators, dtype):
        kind = type(decorator).__name__
        if kind == "toleranceOverride" and dtype in decorator.d:
            allowed = decorator.d[dtype]
            tolerance = tolerance.at_least(allowed.rtol, allowed.atol)
        elif kind == "precisionOverride" and dtype in decorator.d:
            tolerance = tolerance.at_least(0.0, decorator.d[dtype])
    return tolerance


def _active(decorators: Iterable[Any], dtype: torch.dtype) -> Iterator[Any]:
    for decorator in decorators:
        if not hasattr(decorator, "is_active"):
            yield decorator
        elif any(
            _applies(decorator, class_name, test_name, dtype)
            for class_name, test_name in _COMPARING_TESTS
        ):
            yield from decorator.decorators


def _applies(decorator: Any, class_name: str, test_name: str, dtype: torch.dtype) -> bool:
    try:
        return decorator.is_active(class_name, test_name, "cuda", dtype, {})
    except (KeyError, TypeError):
        return False  # its condition asks for arguments of another test
