"""Running one function the way a user would, and what its exceptions mean.

In: a function and a mode. Out: a callable; the verdict of an exception. Forbidden: settings that
users do not have.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchvk_compile.errors import DeviceLostError, UnsupportedOperatorError, VulkanError

from .comparison import Mismatch
from .records import Verdict

_DETAIL_LENGTH = 3000

DEVICE = torch.device("vk", 0)


@dataclass(frozen=True)
class Limits:
    """How many samples of an entry to run in each direction; 0 is all."""

    forward: int = 3
    backward: int = 2


def in_mode(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """`function` as it is (``eager``), or compiled for its sizes, or for any (``dynamic``)."""
    if mode == "eager":
        return function
    # Dynamo keeps what it compiled per code object, and all calls share few of these.
    torch._dynamo.reset()
    return torch.compile(function, backend="torchvk", dynamic=mode == "dynamic")


def verdict_of(error: BaseException) -> Verdict:
    """What an exception in a case means for it."""
    if isinstance(error, UnsupportedOperatorError):
        return Verdict.REFUSED
    if isinstance(error, Mismatch):
        return Verdict.WRONG
    return Verdict.CRASH


def poisons_process(error: BaseException) -> bool:
    """Whether later cases in this process would fail for the same reason."""
    return isinstance(error, DeviceLostError) or (
        isinstance(error, VulkanError) and "LOST" in str(error).upper()
    )


def describe(error: BaseException) -> str:
    """Type and message, and for exceptions that are not ours the innermost frames."""
    text = f"{type(error).__name__}: {error}"
    if verdict_of(error) is Verdict.CRASH:
        frames = traceback.extract_tb(_innermost(error).__traceback__)[-6:]
        text += "".join(f"\n  {f.filename}:{f.lineno} {f.name}: {f.line}" for f in frames)
    if len(text) > _DETAIL_LENGTH:
        half = _DETAIL_LENGTH // 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    return text


def _innermost(error: BaseException) -> BaseException:
    """The exception that `error` wraps, after all wrappings."""
    while True:
        inner = getattr(error, "inner_exception", None) or error.__cause__
        if inner is None:
            return error
        error = inner


def settle() -> None:
    """Wait for the device, so that a late error belongs to the case that made it."""
    torch.vk.synchronize()  # type: ignore[attr-defined]
