"""`profile()`: a ``with`` block whose time is accounted for.

In: what happens inside the block, on all devices and threads. Out: sums, a table, a Chrome trace.
Forbidden: changing what runs; hiding an exception of the block.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from torchvk_compile.errors import UsageError
from torchvk_compile.output import check_writable_file, write_json
from torchvk_compile.profiling import report, summary
from torchvk_compile.profiling.recording import Recorder, Recording
from torchvk_compile.profiling.summary import KernelTotal, TransferTotal
from torchvk_compile.profiling.trace import chrome_trace

_WIDEST = 160


class Profile:
    """Everything that took time inside a ``with torchvk_compile.profile() as p:`` block.

    Covers all devices and threads of the process. Entering and leaving wait for the devices. Blocks may be
    nested and may overlap on several threads: each sees all that happens meanwhile, but the names of
    ``record_function`` blocks go to the one that began first, since torch has one profiler at a time. After
    an exception the profile holds what happened before it. A `Profile` may be entered again; it then forgets
    the block before.
    """

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._recording: Recording | None = None

    def __enter__(self) -> Profile:
        if self._recorder is not None:
            raise RuntimeError("this profile is under way already: call profile() once more")
        self._recording = None
        recorder = Recorder()
        recorder.start()
        self._recorder = recorder
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._recorder is not None
        recorder, self._recorder = self._recorder, None
        self._recording = recorder.stop()

    @property
    def recording(self) -> Recording:
        """All that happened, event by event. Raises RuntimeError before the block has ended."""
        if self._recording is None:
            raise RuntimeError("the profile is complete after its `with` block, not before")
        return self._recording

    @property
    def kernels(self) -> list[KernelTotal]:
        """Device time by kernel, longest first."""
        return summary.kernel_totals(self.recording)

    @property
    def transfers(self) -> list[TransferTotal]:
        """Host time and bytes by kind of transfer."""
        return summary.transfer_totals(self.recording)

    @property
    def compile_times(self) -> dict[str, float]:
        """Seconds by phase of compilation, each without the phases inside it."""
        return {name: ns / 1e9 for name, ns in summary.compile_times(self.recording).items()}

    @property
    def device_seconds(self) -> float:
        """Time in which a kernel ran."""
        return summary.busy_ns(self.recording) / 1e9

    @property
    def host_seconds(self) -> float:
        """Time the host spent submitting graphs."""
        return summary.host_ns(self.recording) / 1e9

    def report(self, *, rows: int = 30, width: int | None = None) -> str:
        """The `rows` longest kernels and the rest of the account, as a table of `width` columns."""
        if width is None:
            width = min(shutil.get_terminal_size((120, 24)).columns, _WIDEST)
        return report.text(self.recording, rows, width)

    def to_dict(self) -> dict[str, Any]:
        """The sums as plain data, for JSON; times in nanoseconds."""
        recording = self.recording
        return {
            "wall_ns": recording.end_ns - recording.begin_ns,
            "device_ns": summary.busy_ns(recording),
            "host_ns": summary.host_ns(recording),
            "compile_ns": summary.compile_times(recording),
            "transfers": [vars(total) for total in self.transfers],
            "kernels": [total.to_dict() for total in self.kernels],
        }

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing, whole or not at all.

        Raises:
            UsageError: the file cannot be written.
        """
        from torchvk_compile.device import runtime_device

        target = Path(path)
        check_writable_file(target)
        indices = sorted({run.plan.device_index for run in self.recording.kernels})
        names = {index: runtime_device(index).profile.name for index in indices}
        try:
            write_json(chrome_trace(self.recording, names), target)
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror}") from None


def profile() -> Profile:
    """Account for time: ``with torchvk_compile.profile() as p: ...; print(p.report())``."""
    return Profile()
