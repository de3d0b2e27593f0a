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


@dataclass(frozen=True)
class Allowed:
    """What an entry allows beyond torch's tolerance for each tensor's dtype.

    Attributes:
        usual: of the tests that compare an accelerator, or compiled code, with eager results.
        elsewhere: the tightest of those the entry names for any of its other tests on CUDA: how far apart its
            authors found two ways to compute the same there. Zero where there is none.
    """

    usual: Tolerance
    elsewhere: Tolerance


NOTHING_MORE = Allowed(Tolerance(0.0, 0.0), Tolerance(0.0, 0.0))


def overrides(info: Any, dtype: torch.dtype) -> Allowed:
    """What an entry of op_db or module_db allows on CUDA beyond the defaults.

    Args:
        info: an OpInfo or ModuleInfo.
        dtype: dtype of the case.
    """
    usual = Tolerance(0.0, 0.0)
    others: list[Tolerance] = []
    for decorator in info.decorators:
        conditional = hasattr(decorator, "is_active")
        for tolerance in _named(decorator.decorators if conditional else [decorator], dtype):
            if not conditional or any(
                _applies(decorator, *test, dtype) for test in _COMPARING_TESTS
            ):
                usual = usual.at_least(tolerance.rtol, tolerance.atol)
            elif _applies(decorator, decorator.cls_name, decorator.test_name, dtype):
                others.append(tolerance)
    tightest = min(others, key=lambda named: named.rtol + named.atol, default=Tolerance(0.0, 0.0))
    return Allowed(usual, tightest)


def _named(decorators: Iterable[Any], dtype: torch.dtype) -> Iterator[Tolerance]:
    for decorator in decorators:
        kind = type(decorator).__name__
        if kind == "toleranceOverride" and dtype in decorator.d:
            yield Tolerance(decorator.d[dtype].rtol, decorator.d[dtype].atol)
        elif kind == "precisionOverride" and dtype in decorator.d:
            yield Tolerance(0.0, decorator.d[dtype])


def _applies(
    decorator: Any, class_name: str | None, test_name: str | None, dtype: torch.dtype
) -> bool:
    try:
        return decorator.is_active(class_name, test_name, "cuda", dtype, {})
    except (KeyError, TypeError):
        return False  # its condition asks for arguments of another test
