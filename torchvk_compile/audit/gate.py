"""The gate that every CPU fallback passes, and the counts of those that did.

In: an operator without a GPU kernel. Out: permission, counted and told; or UnsupportedOperatorError.
Forbidden: running the operator.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Sequence

import torch

from torchvk_compile import config
from torchvk_compile.audit import events
from torchvk_compile.errors import UnsupportedOperatorError

_lock = threading.Lock()
_fallbacks: Counter[str] = Counter()
_host_ops: Counter[str] = Counter()
_warned: set[str] = set()


class CpuFallbackWarning(UserWarning):
    """An operator ran on the CPU because ``config.cpu_fallback`` is "warn"."""


def record_fallback(
    op: str,
    reason: str,
    *,
    dtype: torch.dtype | str | None = None,
    shape: Sequence[object] | None = None,
) -> None:
    """Announce that `op` has no GPU kernel and is about to run on the CPU instead.

    Returns if ``config.cpu_fallback`` allows it, and counts it. Raises UnsupportedOperatorError if
    it is "error" (the default); warns once per operator if it is "warn".
    """
    policy = config.cpu_fallback
    if policy == "error":
        raise UnsupportedOperatorError(op, dtype=dtype, shape=shape, reason=reason)
    with _lock:
        _fallbacks[op] += 1
        first = op not in _warned
        _warned.add(op)
    if events.listeners:
        events.ran_on_host(op)
    if policy == "warn" and first:
        caller = events.user_frame()
        place = "" if caller is None else f" (first at {caller})"
        warnings.warn(
            f"torchvk runs {op} on the CPU{place}: {reason}. This copies its tensors to the host "
            "and back at every call; torchvk_compile.audit() counts the calls.",
            CpuFallbackWarning,
            stacklevel=2,
        )


def record_host_op(op: str) -> None:
    """Count an operator on device tensors that TorchVK computes on the host by design."""
    with _lock:
        _host_ops[op] += 1
    if events.listeners:
        events.ran_on_host(op)


def counts() -> tuple[Counter[str], Counter[str]]:
    """Calls of fallbacks and of host operators since the process started, by operator."""
    with _lock:
        return _fallbacks.copy(), _host_ops.copy()
