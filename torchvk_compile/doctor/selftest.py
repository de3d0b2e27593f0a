"""The self-test as a child process (checker.py): this side starts it and goes on when it dies.

In: names of checks, a time limit. Out: one `CheckResult` a check, in order.
Forbidden: opening a device.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torchvk_compile.doctor.child import Child

COMMAND: tuple[str, ...] = (sys.executable, "-m", "torchvk_compile.doctor.checker")
"""The child's command line; the names of the checks are appended."""

CHECK_SECONDS = 120.0
"""Longest silence of one check, compilation included."""

MARK = "torchvk-selftest "
"""Begins the child's own lines; drivers print to stdout, too."""


@dataclass(frozen=True)
class CheckResult:
    """What became of one check.

    Attributes:
        outcome: "pass"; "unwritten", "wrong" (see CheckFailedError); "error" (an exception);
            "crash", "hang" (the process died or stood still); "skipped" (nothing was tried).
        detail: what was found, in words; empty for "pass".
        seconds: how long it took, compilation included.
    """

    name: str
    outcome: str
    detail: str
    seconds: float


def run(
    names: Sequence[str],
    on_result: Callable[[CheckResult], None],
    *,
    command: Sequence[str] | None = None,
    seconds: float = CHECK_SECONDS,
) -> None:
    """Run the checks of these names, calling `on_result` after each.

    A crash ends one check: the next runs in a new process. After a hang nothing more is tried,
    since the device may be stuck.
    """
    left = list(names)
    while left:
        ended = None
        for result in _run_until_death(left, [*(command or COMMAND), *left], seconds):
            on_result(result)
            left.remove(result.name)
            ended = result
        if left and ended is not None and ended.outcome == "hang":
            for name in left:
                on_result(CheckResult(name, "skipped", "not tried after the hang", 0.0))
            return


def _run_until_death(
    names: Sequence[str], command: Sequence[str], seconds: float
) -> Iterator[CheckResult]:
    """Results of one child; if it dies, the check it was in gets the blame."""
    running = names[0]
    done: set[str] = set()
    start = time.monotonic()
    with Child(command) as child:
        for line in child.lines(seconds):
            if not line.startswith(MARK):
                continue
            event = json.loads(line.removeprefix(MARK))
            running = event["name"]
            if "outcome" in event:
                done.add(running)
                yield CheckResult(**event)
            start = time.monotonic()
        ending = child.ending
    unfinished = [name for name in names if name not in done]
    if unfinished:
        assert ending is not None
        blamed = running if running in unfinished else unfinished[0]
        kind = "crash" if ending.kind == "exit" else ending.kind
        text = ending.text or "the process ended early"
        yield CheckResult(blamed, kind, text, time.monotonic() - start)
