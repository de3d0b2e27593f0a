"""Child processes with a time limit, for everything that a driver could break.

In: a command. Out: the lines it prints, as they come, and how it ended.
Forbidden: raising because of what a child does; leaving a child behind.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO

_SHOWN_ERROR_LINES = 3


@dataclass(frozen=True)
class Ending:
    """How a child ended: ``"exit"`` (by itself, with status 0), ``"crash"`` or ``"hang"``.

    `text` says it in words, the last lines of stderr included; empty for ``"exit"``.
    """

    kind: str
    text: str


class Child:
    """A running child. ``for line in child.lines(seconds)`` waits that long for each line."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.ending: Ending | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed by __exit__
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=None if environment is None else dict(environment),
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def lines(self, seconds: float) -> Iterator[str]:
        """The lines of stdout, each waited for at most `seconds`; sets `ending` at their end."""
        while True:
            try:
                line = self._lines.get(timeout=seconds)
            except queue.Empty:
                self._process.kill()
                self.ending = Ending("hang", f"no answer for {seconds:g} seconds")
                return
            if line is None:
                break
            yield line
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.ending = Ending("hang", f"did not end within {seconds:g} seconds")
            return
        self.ending = Ending("exit", "") if status == 0 else Ending("crash", self._describe(status))

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.put(line.decode(errors="replace").rstrip("\r\n"))
        self._lines.put(None)

    def _describe(self, status: int) -> str:
        # Windows reports a crash as a large status, known by its hexadecimal form.
        plain = f"exit status {status}" if status < 256 else f"exit status 0x{status:08X}"
        cause = plain if status > 0 else _signal_name(-status)
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip().splitlines()
        return "; ".join([f"the process died ({cause})", *errors[-_SHOWN_ERROR_LINES:]])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
