"""`Audit`: the counts of a ``with`` block, and what they are counts of.

In: the runtime's counters, the gate's counts, events. Out: numbers, entries, report, certificate.
Forbidden: formatting; opening a device.
"""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchvk_compile.audit import events, gate
from torchvk_compile.audit.trail import Entry, Trail

if TYPE_CHECKING:
    from torchvk_compile._runtime import Device
    from torchvk_compile.audit.certificate import Certificate

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

_Snapshot = tuple[list[Counter[str]], Counter[str], Counter[str]]
"""Counters of each opened device, fallbacks, host operators."""


class Audit:
    """Counts of everything TorchVK did inside a ``with torchvk_compile.audit() as a:`` block.

    The counts are live inside the block and final after it. They cover all devices and threads of
    the process. Reading them submits what is pending, but waits for nothing.
    """

    def __init__(self) -> None:
        self._before: _Snapshot | None = None
        self._after: _Snapshot | None = None
        self._trail = Trail()

    def __enter__(self) -> Audit:
        self._before = self._snapshot()
        self._after = None
        self._trail = Trail()
        events.listeners.append(self._trail)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._after = self._snapshot()
        events.listeners.remove(self._trail)

    @staticmethod
    def _snapshot() -> _Snapshot:
        from torchvk_compile.device import opened_devices

        return ([Counter(device.counters()) for device in opened_devices()], *gate.counts())

    def _ends(self) -> tuple[_Snapshot, _Snapshot]:
        if self._before is None:
            raise RuntimeError("the audit has not started: use `with torchvk_compile.audit() as a`")
        return self._before, self._after if self._after is not None else self._snapshot()

    def _runtime(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for counts in self._by_device():
            total.update(counts)
        return total

    def _by_device(self) -> list[Counter[str]]:
        """What each opened device did, in the order in which they were opened."""
        before, now = self._ends()
        # A device opened inside the block counts from zero.
        first = [*before[0], *(Counter[str]() for _ in now[0][len(before[0]) :])]
        return [Counter(b) - Counter(a) for a, b in zip(first, now[0])]

    def _counter(self, name: str) -> int:
        return self._runtime()[name]

    @property
    def dispatches(self) -> int:
        """Kernels launched."""
        return self._counter("dispatches")

    @property
    def submissions(self) -> int:
        """Times that work was handed to the driver; short graph calls and copies share one."""
        return self._counter("submissions")

    @property
    def graph_calls(self) -> int:
        """Calls of compiled graphs, one-op graphs of eager operators included."""
        return self._counter("plan_runs")

    @property
    def recordings(self) -> int:
        """Command buffers recorded anew for long graphs; their other calls were replays."""
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
        before, now = self._ends()
        return dict(now[1] - before[1])

    @property
    def host_ops(self) -> dict[str, int]:
        """Operators computed on the host by design, with their number of calls."""
        before, now = self._ends()
        return dict(now[2] - before[2])

    @property
    def gpu_only(self) -> bool:
        """True if no operator on device tensors was computed on the CPU."""
        return not self.fallbacks and not self.host_ops

    def entries(self) -> list[Entry]:
        """Every kind of dispatch, transfer and CPU operator with the line of yours that caused it."""
        return self._trail.entries()

    def to_dict(self) -> dict[str, Any]:
        """All counts and entries as plain data, for JSON."""
        runtime = self._runtime()
        return {
            "gpu_only": self.gpu_only,
            **{name: runtime[name] for name in _COUNTERS},
            "fallbacks": self.fallbacks,
            "host_ops": self.host_ops,
            "entries": [entry.to_dict() for entry in self.entries()],
        }

    def report(self, width: int = 100) -> str:
        """Counts, then a table of what ran and of the source lines that caused it.

        `width` is in columns.
        """
        from torchvk_compile.audit.report import render

        return render(self.to_dict(), width)

    def certificate(self) -> Certificate:
        """A statement for a benchmark: where everything ran, under which versions, with which shaders.

        Raises:
            NotGpuOnlyError: an operator was computed on the CPU, or nothing ran on a device.
        """
        from torchvk_compile.audit.certificate import certify
        from torchvk_compile.device import opened_devices

        used: list[Device] = [
            device
            for device, counts in zip(opened_devices(), self._by_device())
            if counts["dispatches"]
        ]
        profiles = [device.profile for device in used]
        return certify(self.to_dict(), profiles, self._trail.shader_digests())


def audit() -> Audit:
    """Count what runs where: ``with torchvk_compile.audit() as a: ...; print(a.report())``."""
    return Audit()
