"""Contestants of one process: they build a case's program, are checked against float64, and are timed on request.

In: sides, one case at a time. Out: errors, seconds. Forbidden: TorchVK by name; taking turns (`clock` does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from figures.case import Case, Program, tensors
from figures.sides import Side, reference_place
from figures.stopwatch import seconds_of

Judge = Callable[[list[torch.Tensor]], float]
"""Largest error of a program's results, relative to the largest number of the float64 reference."""


class Party:
    """Sides that run in this process.

    Args:
        sides: the contestants.
        judge: knows the reference; None to compute the reference here.
    """

    def __init__(self, sides: Sequence[Side], judge: Judge | None = None) -> None:
        self._sides = {side.name: side for side in sides}
        self._judge = judge
        self._programs: dict[str, Program] = {}
        self._reference: list[torch.Tensor] = []
        self._precision = torch.get_float32_matmul_precision()

    def names(self, case: Case) -> list[str]:
        """Who takes part in a case."""
        return [side.name for side in self._sides.values() if case.replayable or not side.captures]

    def start(self, case: Case) -> None:
        """Compute the reference, unless somebody else does."""
        self._case = case
        torch.set_float32_matmul_precision(case.precision)
        if self._judge is None:
            self._reference = outputs(case.build(reference_place()), case.checked_runs)

    def enter(self, name: str) -> float:
        """Build a side's program. Returns the error of its results."""
        side, case = self._sides[name], self._case
        torch._dynamo.reset()
        program = side.wrap(case.build(side.place))
        error = (self._judge or self.error)(outputs(program, case.checked_runs))
        self._programs[name] = program
        return error

    def error(self, results: list[torch.Tensor]) -> float:
        """A `Judge` by this party's reference."""
        return largest_error(results, self._reference)

    def sample(self, name: str, runs: int) -> float:
        """Seconds for `runs` runs, from an idle device to an idle device."""
        return seconds_of(self._programs[name], self._sides[name].synchronize, runs)

    def device_seconds(self, name: str, runs: int) -> float | None:
        """Mean seconds of the device's kernels in a run, where the device tells."""
        measure = self._sides[name].device_seconds
        return None if measure is None else measure(self._programs[name], runs)

    def finish(self) -> None:
        """Drop the case's programs and its reference."""
        self._programs.clear()
        self._reference = []
        torch.set_float32_matmul_precision(self._precision)
        torch._dynamo.reset()


def outputs(program: Program, runs: int) -> list[torch.Tensor]:
    """What the program returns in its first `runs` runs, copied."""
    return [tensor.clone() for _ in range(runs) for tensor in tensors(program())]


def largest_error(results: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """Largest over the outputs of max |result - reference| / max |reference|; NaN counts as infinite."""
    worst = 0.0
    for result, expected in zip(results, reference, strict=True):
        # A vk tensor reaches another GPU through host memory.
        difference = (result.cpu().to(expected.device).double() - expected.double()).abs().max()
        error = float(difference / expected.double().abs().max().clamp_min(1e-300))
        worst = max(worst, error if error == error else float("inf"))
    return worst
