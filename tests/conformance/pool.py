"""Worker processes, one a job, replaced when they die.

In: cases. Out: results, as they come. Forbidden: waiting longer for a case than its time limit.
"""

from __future__ import annotations

import json
import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .cases import Case, differentiable
from .execution import Limits
from .records import Result

_START_LIMIT_S = 300.0


class WorkerDied(Exception):
    """The process ended, or was ended, before it answered."""


class Worker:
    """One worker process.

    Args:
        limits: samples of a case.
        log: file that gets what the process prints.
        environment: variables on top of this process's own.
    """

    def __init__(self, limits: Limits, log: Path, environment: dict[str, str]) -> None:
        self.limits = limits
        self.log = log
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: Case, limit_s: float) -> Result:
        """Run a case; one that kills the process or takes over `limit_s` seconds is a crash."""
        started = time.monotonic()
        try:
            if self.process is None or self.process.poll() is not None:
                self._start()
            assert self.process is not None and self.process.stdin is not None
            self.process.stdin.write(case.key + "\n")
            self.process.stdin.flush()
            started = time.monotonic()
            answer = json.loads(self._answer(limit_s))
            if answer["leaving"]:
                self.stop()
            return Result.from_json(answer)
        except (WorkerDied, BrokenPipeError) as error:
            detail = str(error) or "the process ended"
            self.stop()
            seconds = time.monotonic() - started
            return Result.crashed(case, detail, seconds, backward=differentiable(case))

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _start(self) -> None:
        package = __package__ or "tests.conformance"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"{package}.worker",
                    f"--forward={self.limits.forward}",
                    f"--backward={self.limits.backward}",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[len(package.split("."))],
                env={**os.environ, **self.environment},
            )
        self._answer(_START_LIMIT_S)

    def _answer(self, limit_s: float) -> str:
        assert self.process is not None and self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise WorkerDied(f"no result within {limit_s:.0f} s")
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            code = self.process.wait()
            cause = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            raise WorkerDied(f"the process died of {cause}; its last words: {self._last_words()}")
        return line

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        # Dynamo's and Inductor's log lines begin with a level and a date.
        spoken = [line.strip() for line in lines if not re.match(r"[VIWEC]\d{4} ", line)]
        return " | ".join(spoken[-8:])[-1000:]


def run_all(
    cases: Sequence[Case],
    *,
    jobs: int,
    limits: Limits,
    limit_s: float,
    log_directory: Path,
    environment: dict[str, str],
) -> Iterator[Result]:
    """Run cases in `jobs` processes and yield their results in the order in which they end."""
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    done: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    stopped = threading.Event()

    def work(index: int) -> None:
        worker = Worker(limits, log_directory / f"worker-{index}.log", environment)
        try:
            while not stopped.is_set():
                try:
                    case = waiting.get_nowait()
                except queue.Empty:
                    return
                done.put(worker.run(case, limit_s))
        except BaseException as error:
            done.put(error)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for _ in cases:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stopped.set()
        for thread in threads:
            thread.join(limit_s + _START_LIMIT_S)
