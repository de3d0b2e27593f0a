"""Samples of one case, run one after another, and their verdicts.

In: a function that runs one sample. Out: the verdict of a direction. Forbidden: going on with a
lost device.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .cases import Case
from .execution import describe, poisons_process, settle, verdict_of
from .records import Direction, Result, Verdict


class ProcessPoisoned(Exception):
    """The device is gone; carries the result of the case that lost it."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.case.key)
        self.result = result


class Attempts:
    """One direction of a case.

    Attributes:
        direction: what the samples so far came to.
        poisoned: whether the device was lost.
    """

    def __init__(self) -> None:
        self.direction = Direction()
        self.poisoned = False

    def attempt(self, what: str, run_one: Callable[[Direction], bool]) -> None:
        """Run one sample.

        Args:
            what: the sample, in words.
            run_one: returns whether CPU eager could compute the sample; raises what vk raises, or
                `Mismatch`.
        """
        if self.poisoned:
            return
        try:
            if run_one(self.direction):
                self.direction.add(Verdict.PASS)
        except Exception as error:
            self.direction.add(verdict_of(error), f"{what}: {describe(error)}")
            self.poisoned = poisons_process(error)
        try:
            settle()
        except Exception as error:
            self.poisoned = self.poisoned or poisons_process(error)

    def outcome(self) -> Direction | None:
        """The direction's verdict, or None when CPU eager could compute no sample."""
        return self.direction if self.direction.counts else None


def result_of(case: Case, forward: Attempts, backward: Attempts, started: float) -> Result:
    """The result of a case that began at ``time.monotonic() == started``.

    Raises:
        ProcessPoisoned: the device was lost on the way; the result is in it.
    """
    result = Result(case, forward.outcome(), backward.outcome(), time.monotonic() - started)
    if forward.poisoned or backward.poisoned:
        raise ProcessPoisoned(result)
    return result
