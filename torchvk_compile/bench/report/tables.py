"""The report's tables.

In: results. Out: `Table`s of text. Forbidden: markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchvk_compile.bench.forecast import Check
from torchvk_compile.bench.report import style
from torchvk_compile.bench.results import Results, Way, loss_gap, measured_ways, ratio
from torchvk_compile.bench.summaries import quality, summary
from torchvk_compile.bench.verdicts import OURS


@dataclass(frozen=True)
class Table:
    """Rows of text under a head; the first column is left-aligned, the others right.

    `notable` are the rows that deserve a mark: those where TorchVK is slower than somebody.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notable: frozenset[int] = frozenset()


DRIFT_MARK, NOISE_MARK = "†", "‡"
"""Beside a median whose samples drift, or scatter."""


def _marked(way: Way, method: Mapping[str, Any]) -> str:
    found = quality(way["seconds"], method)
    marks = (DRIFT_MARK if found.drift else "") + (NOISE_MARK if found.noise else "")
    return f"{style.spread(way)} {marks}".rstrip()


def timed_table(results: Results, experiment: str, method: Mapping[str, Any]) -> Table | None:
    """Every case and way: median, quartiles, time of TorchVK compiled over it."""
    rows: list[tuple[str, ...]] = []
    slower = set()
    for case, ways in results.timed(experiment):
        for name, way in ways.items():
            against = ratio(ways, OURS, name) if name != OURS else None
            if against is not None and against.lower > 1:
                slower.add(len(rows))
            check = way["check"]
            error = style.number(check["error"]) if "error" in check else "–"
            first = way["facts"].get("first_seconds")
            rows.append(
                (
                    _case_text(case),
                    style.label(name),
                    _marked(way, method),
                    style.ratio(against),
                    error,
                    style.seconds(first) if first else "–",
                )
            )
    if not rows:
        return None
    head = ("case", "way", "median (quartiles)", "TorchVK's time / its time", "error", "first call")
    return Table("Samples of every way, taken in turn.", head, tuple(rows), frozenset(slower))


def training_table(results: Results, experiment: str, target: float) -> Table | None:
    """Whole trainings: accuracy, seconds to the target, losses against the CPU's."""
    trainings = results.trainings(experiment)
    if not trainings:
        return None
    reference = trainings.get("cpu-eager")
    rows = []
    for name, training in trainings.items():
        reached = [e["seconds"] for e in training["epochs"] if e["accuracy"] >= target]
        gap = loss_gap(training["losses"], reference["losses"]) if reference else float("nan")
        rows.append(
            (
                style.label(name),
                f"{training['epochs'][-1]['accuracy']:.4f}",
                style.seconds(reached[0]) if reached else "not reached",
                style.seconds(training["epochs"][-1]["seconds"]),
                style.number(gap),
            )
        )
    head = ("way", "test accuracy", f"time to {target:.0%}", "time in all", "first losses off by")
    return Table("Whole trainings, with what the caches left to compile.", head, tuple(rows))


def memory_table(results: Results) -> Table | None:
    """Every limit that was tried."""
    rows = []
    for record in results.of("E5"):
        case = record["case"]
        how = "recomputed" if case["recompute"] else "plain"
        for attempt in record.get("attempts", ()):
            fits = attempt["outcome"] == "fits"
            rows.append(
                (
                    f"{case['workload']}, {how}",
                    f"{attempt['limit_mib']:,} MiB",
                    attempt["outcome"],
                    style.nbytes(attempt["reserved_peak_bytes"]),
                    "–" if fits else ("goes on" if attempt["goes_on"] else "broken"),
                )
            )
    if not rows:
        return None
    head = ("workload", "limit", "outcome", "reserved at the peak", "afterwards")
    return Table("Training under a limit of video memory.", head, tuple(rows))


def least_table(results: Results) -> Table | None:
    """The least limit of every workload, and what a step costs under it."""
    rows = []
    for record in results.of("E5"):
        if not record.get("at_least"):
            continue
        how = "recomputed" if record["case"]["recompute"] else "plain"
        free, limited = (summary(record["at_least"][n]) for n in ("unlimited", "limited"))
        rows.append(
            (
                f"{record['case']['workload']}, {how}",
                style.nbytes(record["unlimited"]["reserved_peak_bytes"]),
                f"{record['least_mib']} MiB",
                style.seconds(free.median),
                style.seconds(limited.median),
                f"{limited.median / free.median:.2f}",
            )
        )
    if not rows:
        return None
    head = ("workload", "peak", "least limit", "step, no limit", "step at the least", "ratio")
    return Table("The least that works.", head, tuple(rows))


def ablation_table(results: Results, method: Mapping[str, Any]) -> Table | None:
    """Every mechanism of every workload."""
    rows: list[tuple[str, ...]] = []
    costs = set()
    for case, ways in results.timed("E6", workload="train"):
        for name, way in ways.items():
            against = ratio(ways, name, "full") if name != "full" else None
            if against is not None and against.upper < 1:
                costs.add(len(rows))
            facts = way["facts"]
            steps = facts["audit"]["steps"]
            rows.append(
                (
                    case["name"],
                    name.replace("_", " "),
                    _marked(way, method),
                    style.ratio(against),
                    f"{facts['audit']['dispatches'] / steps:g}",
                    f"{facts['audit']['recordings'] / steps:.2g}",
                    style.nbytes(facts["memory"]["allocated_peak_bytes"]),
                )
            )
    if not rows:
        return None
    head = ("workload", "system", "step", "time / full", "dispatches", "recordings", "peak memory")
    return Table("One mechanism off at a time.", head, tuple(rows), frozenset(costs))


def start_table(results: Results) -> Table | None:
    """First steps of new processes."""
    rows = [
        (
            record["case"]["name"],
            style.seconds(record["cold_seconds"]),
            style.seconds(summary(record["warm_seconds"]).median),
            f"{record['cold_seconds'] / summary(record['warm_seconds']).median:.1f}",
        )
        for record in results.of("E6")
        if "cold_seconds" in record
    ]
    if not rows:
        return None
    head = ("workload", "empty caches", "filled caches", "ratio")
    return Table("First step of a new process, compilation included.", head, tuple(rows))


def losing(results: Results) -> Table | None:
    """Every case where TorchVK compiled is slower than another way beyond noise, worst first."""
    found = [
        (against.median, record["experiment"], _case_text(record["case"]), name, against)
        for record in results.records
        if record["experiment"] != "E6"
        for ways in [measured_ways(record)]
        for name in ways
        if name != OURS
        for against in [ratio(ways, OURS, name)]
        if against is not None and against.lower > 1
    ]
    if not found:
        return None
    rows = [
        (f"{experiment}, {case}", style.label(name), f"{against.median:.3g} times as long")
        for _, experiment, case, name, against in sorted(found, key=lambda row: -row[0])
    ]
    return Table("Where TorchVK loses, worst first.", ("case", "against", "takes"), tuple(rows))


def prediction_table(prediction: Mapping[str, Any]) -> Table:
    """What the RX 5600 XT would need, by the roofline."""
    rows = []
    for entry in prediction["cases"]:
        if "failure" in entry:
            rows.append(
                (entry["experiment"], _case_text(entry["case"]), entry["failure"], *["–"] * 5)
            )
            continue
        seconds = entry["seconds"]
        rows.append(
            (
                entry["experiment"],
                _case_text(entry["case"]),
                style.seconds(seconds),
                entry["bound"],
                f"{entry['moved_bytes'] / seconds / 1e9:.3g}",
                f"{entry['flops'] / seconds / 1e9:.3g}",
                str(entry["dispatches"]),
                f"{entry['most_vgprs']}, {entry['spilling_kernels']}",
            )
        )
    head = (
        "",
        "case",
        "predicted",
        "bound by",
        "GB/s",
        "GFLOP/s",
        "dispatches",
        "most VGPRs, spilling",
    )
    return Table("Predicted, not measured.", head, tuple(rows))


def check_table(found: Sequence[Check]) -> Table:
    """The same method on a card that was measured."""
    rows = [
        (
            check.experiment,
            _case_text(check.case),
            style.seconds(check.predicted),
            style.seconds(check.measured),
            f"{check.factor:.2f}",
        )
        for check in found
    ]
    head = ("", "case", "predicted", "measured", "measured / predicted")
    return Table(f"The method checked on the {found[0].card.name}.", head, tuple(rows))


def environment_table(environment: Mapping[str, Any]) -> Table:
    """Where and with what the results were made."""
    versions = environment["versions"]
    rows: Sequence[tuple[str, str]] = (
        ("device", f"{environment['device']} ({environment['device_type']})"),
        ("driver", f"{environment['driver']}, Vulkan {environment['api_version']}"),
        ("processor", f"{environment['processor']}, {environment['processor_count']} threads"),
        ("PyTorch's threads", str(environment["torch_threads"])),
        ("CUDA device", environment["cuda_device"] or "none"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("clocks", _listed(environment["clocks"]) or "unknown"),
        ("load before the start", str(environment["load_average"])),
        ("not there", _listed(environment["absent"]) or "nothing"),
    )
    return Table("Environment.", ("what", "value"), tuple(rows))


def _listed(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{style.label(name)}: {value}" for name, value in values.items())


def _case_text(case: Mapping[str, Any]) -> str:
    if case["workload"] in ("add", "copy"):
        return f"{case['workload']}, {case['n']:,} elements"
    if case["workload"] == "matmul":
        return f"{case['n']} x {case['n']}, {case['dtype']}, {case['layout']}"
    text = f"{case['model']}, batch {case['batch']}"
    if case.get("recompute"):
        text += ", recomputed activations"
    return text + "".join(f", without {name}" for name in case.get("without", ()))
