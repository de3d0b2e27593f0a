"""Verdicts, and the file that keeps them.

In: results of cases, as they come. Out: JSON lines that survive a killed run; the results of
earlier runs. Forbidden: rewriting results that are on disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from .cases import Case
from .comparison import Measure


class Verdict(str, Enum):
    """What became of a case; of several samples, the worst counts (the later of these)."""

    PASS = "pass"
    REFUSED = "refused"
    WRONG = "wrong"
    CRASH = "crash"

    @property
    def badness(self) -> int:
        return list(Verdict).index(self)


@dataclass
class Direction:
    """Forward or backward of a case, over its samples.

    Attributes:
        verdict: the worst of the samples' verdicts.
        counts: number of samples by verdict.
        exact: samples with elements beyond the tolerance that are as near to float64 as CPU eager's.
        elsewhere: samples that need the tolerance the entry names for other tests on CUDA.
        free: samples whose result is one of several right ones.
        detail: of the first sample with the worst verdict: which, and what happened.
    """

    verdict: Verdict = Verdict.PASS
    counts: dict[str, int] = field(default_factory=dict)
    exact: int = 0
    elsewhere: int = 0
    free: int = 0
    detail: str = ""

    def passed_by(self, measure: Measure) -> None:
        """Count a sample that another measure than the usual tolerance finds right."""
        if measure is not Measure.USUAL:
            setattr(self, measure.value, getattr(self, measure.value) + 1)

    def add(self, verdict: Verdict, detail: str = "") -> None:
        self.counts[verdict.value] = self.counts.get(verdict.value, 0) + 1
        if verdict.badness > self.verdict.badness:
            self.verdict, self.detail = verdict, detail


@dataclass
class Result:
    """Outcome of one case.

    Attributes:
        case: which.
        forward, backward: None when CPU eager refuses all samples itself.
        seconds: how long it took.
        revision: of the sources it ran with, empty if unknown.
    """

    case: Case
    forward: Direction | None
    backward: Direction | None
    seconds: float
    revision: str = ""

    def directions(self) -> list[tuple[str, Direction]]:
        named = (("forward", self.forward), ("backward", self.backward))
        return [(name, direction) for name, direction in named if direction is not None]

    @property
    def worst(self) -> Verdict:
        verdicts = [direction.verdict for _, direction in self.directions()]
        return max(verdicts, key=lambda verdict: verdict.badness, default=Verdict.PASS)

    def to_json(self) -> dict[str, object]:
        record: dict[str, object] = {"case": self.case.key, "seconds": round(self.seconds, 2)}
        if self.revision:
            record["revision"] = self.revision
        for name, direction in self.directions():
            record[name] = asdict(direction)
        return record

    @staticmethod
    def from_json(record: dict[str, object]) -> Result:
        def direction(name: str) -> Direction | None:
            found = record.get(name)
            if not isinstance(found, dict):
                return None
            return Direction(**{**found, "verdict": Verdict(found["verdict"])})

        return Result(
            case=Case.from_key(str(record["case"])),
            forward=direction("forward"),
            backward=direction("backward"),
            seconds=float(str(record["seconds"])),
            revision=str(record.get("revision", "")),
        )

    @staticmethod
    def crashed(case: Case, detail: str, seconds: float, *, backward: bool) -> Result:
        """The result of a case whose process did not live to tell."""
        directions = [Direction() for _ in range(2)]
        for direction in directions:
            direction.add(Verdict.CRASH, detail)
        return Result(case, directions[0], directions[1] if backward else None, seconds)


class ResultFile:
    """Results as JSON lines; a later line for a case replaces an earlier one.

    Args:
        path: the file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Result]:
        """All results by case key. A last line cut short by a killed run is ignored."""
        results: dict[str, Result] = {}
        if not self.path.exists():
            return results
        for line in self.path.read_text().splitlines():
            try:
                result = Result.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            results[result.case.key] = result
        return results

    def append(self, results: Iterable[Result]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            for result in results:
                file.write(json.dumps(result.to_json()) + "\n")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
