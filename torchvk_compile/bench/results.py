"""Looking things up in results: the latest record of every case of one run.

In: records. Out: ways, samples, trainings by case. Forbidden: judging them; reading files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchvk_compile.bench.plan import Mode
from torchvk_compile.bench.records import identity_of
from torchvk_compile.bench.summaries import Ratio, paired_ratio
from torchvk_compile.errors import CorruptDataError

Way = Mapping[str, Any]
"""What is recorded of one way in one case: seconds, at, calls, check, facts; or failure."""


@dataclass(frozen=True)
class Results:
    """Results of one mode, one plan and one environment: those of the last record.

    Attributes:
        mode: full or quick.
        plan: SHA-256 of the plan they were made with.
        environment: its record.
        records: one per case, the latest.
        others: how many results of other modes, plans or environments the file holds, too.
    """

    mode: Mode
    plan: str
    environment: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    others: int

    def of(self, experiment: str, **case: Any) -> list[Mapping[str, Any]]:
        """Records of an experiment whose case has these values."""
        return [
            record
            for record in self.records
            if record["experiment"] == experiment
            and all(record["case"].get(name) == value for name, value in case.items())
        ]

    def timed(
        self, experiment: str, **case: Any
    ) -> list[tuple[Mapping[str, Any], Mapping[str, Way]]]:
        """Case and ways of every timed record; ways that failed are left out."""
        return [
            (record["case"], measured_ways(record))
            for record in self.of(experiment, **case)
            if "ways" in record
        ]

    def trainings(self, experiment: str) -> Mapping[str, Any]:
        """Outcomes of the experiment's whole trainings by way; those that failed are left out."""
        for record in self.of(experiment):
            if "trainings" in record:
                return {k: v for k, v in record["trainings"].items() if "failure" not in v}
        return {}


def latest(records: Sequence[Mapping[str, Any]]) -> Results:
    """The results that belong with the last one.

    Raises ValueError when there are none, CorruptDataError when nothing tells which machine they come from.
    """
    results = [record for record in records if record["kind"] == "result"]
    if not results:
        raise ValueError("no results")
    last = results[-1]
    shared = ("mode", "plan", "environment")
    ours = [r for r in results if all(r[name] == last[name] for name in shared)]
    by_case = {repr(identity_of(record)): record for record in ours}
    environments = [
        r for r in records if r["kind"] == "environment" and r["id"] == last["environment"]
    ]
    if not environments:
        raise CorruptDataError(
            f"results of an environment that is not described: {last['environment']}"
        )
    return Results(
        mode=last["mode"],
        plan=last["plan"],
        environment=environments[-1],
        records=tuple(by_case.values()),
        others=len(results) - len(ours),
    )


def measured_ways(record: Mapping[str, Any]) -> dict[str, Way]:
    """The ways of a timed record that have samples and did not fail."""
    ways = record.get("ways", {})
    return {k: way for k, way in ways.items() if way.get("seconds") and "failure" not in way}


def failures(record: Mapping[str, Any]) -> dict[str, str]:
    """Reason of every failure in a record, by way."""
    found = {"": record["failure"]} if "failure" in record else {}
    for part in ("ways", "trainings"):
        for name, entry in record.get(part, {}).items():
            if "failure" in entry:
                found[name] = entry["failure"]
    return found


def ratio(ways: Mapping[str, Way], ours: str, theirs: str) -> Ratio | None:
    """Time of one way over that of another, paired; None where one is missing."""
    if ours not in ways or theirs not in ways:
        return None
    return paired_ratio(ways[ours]["seconds"], ways[theirs]["seconds"])


def loss_gap(ours: Iterable[float], theirs: Iterable[float], steps: int = 10) -> float:
    """Largest relative difference of two rows of losses over their first steps."""
    pairs = list(zip(ours, theirs))[:steps]
    return max((abs(a - b) / max(abs(b), 1e-12) for a, b in pairs), default=float("nan"))
