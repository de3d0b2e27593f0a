"""What ran where: proof that work stayed on the GPU, and the one gate every CPU fallback passes.

In: the runtime's counters; reports of operators that ran, or would have to run, on the CPU.
Out: `Audit` (counts of a ``with`` block), or UnsupportedOperatorError.
Forbidden: opening a device; running operators; letting a fallback pass uncounted.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import torch

from torchvk_compile import config
from torchvk_compile.errors import UnsupportedOperatorError

_COUNTERS = (
    "dispatches",
    "submissions",
    "plan_runs",
    "recordings",
    "uploads",
    "uploaded_bytes",
    "downloads",
    "downloaded_bytes",
)

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
    if policy == "warn" and first:
        warnings.warn(
            f"torchvk runs {op} on the CPU: {reason}. This copies its tensors to the host and back "
            "at every call.",
            CpuFallbackWarning,
            stacklevel=2,
        )


def record_host_op(op: str) -> None:
    """Count an operator on device tensors that TorchVK computes on the host by design."""
    with _lock:
        _host_ops[op] += 1


def _runtime_counters() -> Counter[str]:
    from torchvk_compile.device import opened_devices

    total: Counter[str] = Counter()
    for device in opened_devices():
        total.update(device.counters())
    return total


class Audit:
    """Counts of everything TorchVK did inside a ``with torchvk_compile.audit() as a:`` block.

    The counts are live inside the block and final after it. They cover all devices and threads of
    the process. Work counts when it is submitted, so no synchronisation is needed.
    """

    def __init__(self) -> None:
        self._before: tuple[Counter[str], Counter[str], Counter[str]] | None = None
        self._after: tuple[Counter[str], Counter[str], Counter[str]] | None = None

    def __enter__(self) -> Audit:
        self._before = self._snapshot()
        self._after = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._after = self._snapshot()

    @staticmethod
    def _snapshot() -> tuple[Counter[str], Counter[str], Counter[str]]:
        runtime = _runtime_counters()
        with _lock:
            return runtime, _fallbacks.copy(), _host_ops.copy()

    def _difference(self, index: int) -> Counter[str]:
        if self._before is None:
            raise RuntimeError("the audit has not started: use `with torchvk_compile.audit() as a`")
        now = self._after if self._after is not None else self._snapshot()
        return now[index] - self._before[index]

    def _counter(self, name: str) -> int:
        return self._difference(0)[name]

    @property
    def dispatches(self) -> int:
        """Kernels launched."""
        return self._counter("dispatches")

    @property
    def submissions(self) -> int:
        """Command buffers handed to the driver: graph calls, uploads, downloads, copies, fills."""
        return self._counter("submissions")

    @property
    def graph_calls(self) -> int:
        """Calls of compiled graphs, one-op graphs of eager operators included."""
        return self._counter("plan_runs")

    @property
    def recordings(self) -> int:
        """Command buffers recorded anew; graph calls beyond these were replays."""
        return self._counter("recordings")

    @property
    def uploads(self) -> int:
        """Copies from the host to a device."""
        return self._counter("uploads")

    @property
    def uploaded_bytes(self) -> int:
        """Bytes copied from the host to a device."""
        return self._counter("uploaded_bytes")

    @property
    def downloads(self) -> int:
        """Copies from a device to the host; ``.item()`` and printing are downloads too."""
        return self._counter("downloads")

    @property
    def downloaded_bytes(self) -> int:
        """Bytes copied from a device to the host."""
        return self._counter("downloaded_bytes")

    @property
    def fallbacks(self) -> dict[str, int]:
        """Operators that ran on the CPU for want of a GPU kernel, with their number of calls."""
        return dict(self._difference(1))

    @property
    def host_ops(self) -> dict[str, int]:
        """Operators computed on the host by design, with their number of calls."""
        return dict(self._difference(2))

    @property
    def gpu_only(self) -> bool:
        """True if no operator on device tensors was computed on the CPU."""
        return not self.fallbacks and not self.host_ops

    def to_dict(self) -> dict[str, object]:
        """All counts as plain data, for JSON."""
        runtime = self._difference(0)
        return {
            "gpu_only": self.gpu_only,
            **{name: runtime[name] for name in _COUNTERS},
            "fallbacks": self.fallbacks,
            "host_ops": self.host_ops,
        }

    def report(self) -> str:
        """The counts as a few lines of text."""
        return "\n".join(
            (
                f"GPU only       {'yes' if self.gpu_only else 'NO'}",
                f"dispatches     {self.dispatches} in {self.submissions} submissions "
                f"({self.graph_calls} graph calls, {self.recordings} recorded anew)",
                f"uploads        {self.uploads} ({self.uploaded_bytes:,} bytes)",
                f"downloads      {self.downloads} ({self.downloaded_bytes:,} bytes)",
                f"CPU fallbacks  {_listing(self.fallbacks)}",
                f"host operators {_listing(self.host_ops)}",
            )
        )


def audit() -> Audit:
    """Count what runs where: ``with torchvk_compile.audit() as a: ...; print(a.report())``."""
    return Audit()


def _listing(calls: dict[str, int]) -> str:
    ordered = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{op} ({number})" for op, number in ordered) or "none"
