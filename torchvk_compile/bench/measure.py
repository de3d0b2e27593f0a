"""Measuring one case: open it in every way, take turns, check the results, close it.

In: a case and ways. Out: plain data, one entry per way, failures included. Forbidden: knowing which experiment asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchvk_compile.bench.plan import Experiment, Mode
from torchvk_compile.bench.timing import Failure, Sampler, interleave, reason_of
from torchvk_compile.bench.ways import Field, Opened, Way


@dataclasses.dataclass
class Context:
    """What a task may use.

    Attributes:
        experiment: of the plan.
        mode: full or quick.
        field: the ways of this machine.
        device: torch device string of the vk device under test.
        images: data by experiment, loaded once.
        tick: tells the progress bar what is being done.
    """

    experiment: Experiment
    mode: Mode
    field: Field
    device: str
    images: Mapping[str, Any]
    tick: Callable[[str], None]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The experiment's settings in this mode."""
        return self.experiment.settings[self.mode]


@dataclasses.dataclass(frozen=True)
class Task:
    """One record to make.

    Attributes:
        case: what is measured; its identity in the results.
        run: measures it; the rest of the record.
        label: for people.
    """

    case: Mapping[str, Any]
    run: Callable[[Context], dict[str, Any]]
    label: str


Tasks = Callable[[Context], Iterator[Task]]
"""From an experiment's context to everything it measures, in order."""


def time_ways(context: Context, case: Mapping[str, Any], ways: Mapping[str, Way]) -> dict[str, Any]:
    """Time a case in several ways, taking turns.

    Args:
        context: for the number of rounds.
        case: of `workloads.build`.
        ways: by the name their results are to have.

    Returns:
        ``{"ways": {name: entry}}``; an entry has seconds, at, calls, check and facts, or failure.
    """
    entries: dict[str, dict[str, Any]] = {}
    opened: dict[str, Opened] = {}
    for name, way in ways.items():
        context.tick(f"{name}: making ready")
        try:
            opened[name] = way.open(case)
        except Exception as error:
            entries[name] = {"failure": reason_of(error)}
    settings = context.settings
    samplers: dict[str, Sampler] = dict(opened)
    try:
        measured = interleave(
            samplers,
            rounds=settings["rounds"],
            warm_up=settings["warm_up"],
            sample_seconds=settings["sample_seconds"],
            longest_call_seconds=settings.get("longest_call_seconds", float("inf")),
            on_sample=lambda: context.tick("sampling"),
        )
        for name, samples in measured.items():
            if isinstance(samples, Failure):
                entries[name] = {"failure": samples.reason}
                continue
            try:
                more: dict[str, Any] = {
                    "check": opened[name].check(),
                    "facts": opened[name].facts(),
                }
            except Exception as error:
                more = {"failure": reason_of(error)}
            entries[name] = dataclasses.asdict(samples) | more
    finally:
        for work in opened.values():
            try:
                work.close()
            except Exception as error:
                entries.setdefault("closing", {"failure": reason_of(error)})
    return {"ways": {name: entries[name] for name in (*ways, "closing") if name in entries}}
