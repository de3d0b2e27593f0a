"""Putting the report together: verdicts first, then every experiment with its plots, tables and criteria.

In: a plan and results. Out: ``report.html``, ``report.md``. Forbidden: numbers of its own; links to anything outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from torchvk_compile import output
from torchvk_compile.bench.forecast import Check, checks, typical_error
from torchvk_compile.bench.plan import Plan
from torchvk_compile.bench.records import RESULTS_FILE, read_records
from torchvk_compile.bench.report import figures, style, tables
from torchvk_compile.bench.report.figures import Figure
from torchvk_compile.bench.report.tables import Table
from torchvk_compile.bench.results import Results, failures, latest
from torchvk_compile.bench.summaries import quality
from torchvk_compile.bench.verdicts import Judged, Verdict, judge
from torchvk_compile.cards import RX_5600_XT, Card
from torchvk_compile.errors import CorruptDataError

ANSWERS = {
    "accepted": "accepted",
    "refuted": "refuted: at least one criterion fails",
    "not yet": "not yet: some criteria could not be decided",
}


@dataclass(frozen=True)
class Section:
    """One experiment in the report."""

    verdict: Verdict
    criteria: Table
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def write_report(
    directory: Path, plan: Plan, records: Sequence[Mapping[str, Any]]
) -> tuple[Path, Path]:
    """Write both forms of the report into `directory`. Returns their paths."""
    results = latest(records)
    predictions = [record for record in records if record["kind"] == "prediction"]
    values = {
        "prediction": _prediction(predictions[-1], directory, results) if predictions else None,
        "plan": plan,
        "results": results,
        "environment": tables.environment_table(results.environment),
        "warnings": _first_page_warnings(plan, results),
        "sections": [_section(verdict, plan, results) for verdict in judge(plan, results)],
        "losing": tables.losing(results),
        "answers": ANSWERS,
    }
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["cell"] = lambda text: text.replace("|", "\\|")
    paths = []
    for name in ("report.html", "report.md"):
        text = templates.get_template(f"{name}.j2").render(values)
        path = directory / name
        output.write_text(text, path)
        paths.append(path)
    return paths[0], paths[1]


@dataclass(frozen=True)
class PredictionSection:
    """The part of the report that was not measured."""

    card: Card
    error: str
    figure: Figure
    tables: tuple[Table, ...]


def _prediction(record: Mapping[str, Any], directory: Path, results: Results) -> PredictionSection:
    found = checks(results) or _checks_beside(directory)
    error = (
        "The method was not checked yet: no results of a card with known numbers are beside these."
    )
    parts = [tables.prediction_table(record)]
    if found:
        middle, within = typical_error(found)
        error = (
            f"Checked on the {found[0].card.name}, {len(found)} cases: measured over predicted is {middle:.2g} at the "
            f"median, and two thirds of the cases are within a factor of {within:.2g} either way."
        )
        parts.append(tables.check_table(found))
    return PredictionSection(RX_5600_XT, error, figures.roofline(record, RX_5600_XT), tuple(parts))


def _checks_beside(directory: Path) -> list[Check]:
    """Checks from the results of other devices: ``../../<device>/<date>/results.jsonl``."""
    for path in sorted(directory.resolve().parents[1].glob(f"*/*/{RESULTS_FILE}"), reverse=True):
        try:
            found = checks(latest(read_records(path)))
        except (CorruptDataError, ValueError):
            continue
        if found:
            return found
    return []


def _first_page_warnings(plan: Plan, results: Results) -> list[str]:
    found = []
    if results.plan != plan.sha256:
        found.append(
            f"These results were made with another plan ({results.plan[:12]}…) than the one they are judged by "
            f"({plan.sha256[:12]}…)."
        )
    if not plan.is_committed:
        found.append(
            "The plan they are judged by is not the committed one: it may have been written after the results."
        )
    if results.mode == "quick":
        found.append(
            "Quick run: its sizes are small, so its verdicts say that everything works, and little about speed."
        )
    if results.environment["device_type"] == "cpu":
        found.append(
            f"{results.environment['device']} is a Vulkan driver that runs on the CPU. Times compare code on one "
            "processor; they say nothing about a graphics card."
        )
    load, processors = (results.environment[n] for n in ("load_average", "processor_count"))
    if load is not None and processors and load > processors:
        found.append(
            f"The machine was busy when the run began (load {load:.1f} on {processors} processors): times scatter, and "
            "criteria about time may fail or hold by chance."
        )
    if results.others:
        found.append(f"{results.others} results of other runs in the same file are left out.")
    return found


def _section(verdict: Verdict, plan: Plan, results: Results) -> Section:
    key = verdict.experiment.key
    plots, found = _content(plan, verdict, results)
    return Section(
        verdict,
        _criteria_table(verdict.criteria),
        tuple(plot for plot in plots if plot is not None),
        tuple(table for table in found if table is not None),
        tuple(_notes(key, plan, results)),
    )


def _content(
    plan: Plan, verdict: Verdict, results: Results
) -> tuple[list[Figure | None], list[Table | None]]:
    key = verdict.experiment.key
    if key == "E1":
        return [figures.bandwidth_sweep(results)], [tables.timed_table(results, key, plan.method)]
    if key == "E2":
        sweeps = [figures.product_sweep(results, dtype) for dtype in ("float32", "float16")]
        return sweeps, [tables.timed_table(results, key, plan.method)]
    if key in ("E3", "E4"):
        target = verdict.experiment.settings[results.mode]["target_accuracy"]
        plots = [figures.step_bars(results, key), figures.accuracy_curves(results, key)]
        training = tables.training_table(results, key, target)
        return plots, [training, tables.timed_table(results, key, plan.method)]
    if key == "E5":
        plots = [figures.limit_bars(results), figures.memory_curve(results)]
        return plots, [tables.least_table(results), tables.memory_table(results)]
    return list(figures.ablation_bars(results)), [
        tables.ablation_table(results, plan.method),
        tables.start_table(results),
    ]


def _criteria_table(criteria: Sequence[Judged]) -> Table:
    rows = []
    for judged in criteria:
        criterion = judged.criterion
        least = criterion.at_least is not None or criterion.at_least_target
        limit = f"{'at least' if least else 'at most'} {style.number(judged.bound)}"
        if criterion.only:
            limit += f" ({', '.join(criterion.only)} only)"
        rows.append((criterion.name, limit, style.number(judged.value), judged.outcome))
    head = ("criterion, fixed beforehand", "bound", "measured", "outcome")
    return Table("Criteria.", head, tuple(rows))


def _notes(key: str, plan: Plan, results: Results) -> list[str]:
    found = []
    for record in results.of(key):
        found += [
            f"{record['label']}: {style.label(name)} failed: {reason}".replace(
                ":  failed", " failed"
            )
            for name, reason in failures(record).items()
        ]
        if "data" in record["case"]:
            found.append(f"Data: {record['case']['data']}")
    judged = [
        quality(way["seconds"], plan.method)
        for _, ways in results.timed(key)
        for way in ways.values()
    ]
    drifting, noisy = sum(bool(q.drift) for q in judged), sum(bool(q.noise) for q in judged)
    if drifting:
        found.append(
            f"{tables.DRIFT_MARK} in {drifting} of {len(judged)} rows: the last third of the samples differs from the "
            f"first by more than {plan.method['drift_share']:.0%}."
        )
    if noisy:
        found.append(
            f"{tables.NOISE_MARK} in {noisy} of {len(judged)} rows: the middle half of the samples spans more than "
            f"{plan.method['noise_share']:.0%} of the median."
        )
    return found
