"""Results against the plan: which criteria hold, which fail, which cannot be decided.

In: results and a plan. Out: a `Verdict` per experiment. Forbidden: bounds of its own; passing what was not measured.

Every measure is a function from an experiment's results to a number, or None where the data are not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchvk_compile.bench.plan import Criterion, Experiment, Plan
from torchvk_compile.bench.results import Results, Way, loss_gap, ratio
from torchvk_compile.bench.summaries import summary

Outcome = Literal["holds", "fails", "undecided", "not applicable"]
Answer = Literal["accepted", "refuted", "not yet"]

OURS = "vk-compiled"
_LAYOUT_SIZE = 512
_LIBRARY_SIZE = 1024
_SIX_GIB_MIB = 6144


@dataclass(frozen=True)
class Judged:
    """A criterion with the value that was measured (None: no data)."""

    criterion: Criterion
    value: float | None
    bound: float
    outcome: Outcome


@dataclass(frozen=True)
class Verdict:
    """An experiment's answer, and what it rests on."""

    experiment: Experiment
    answer: Answer
    criteria: tuple[Judged, ...]


def judge(plan: Plan, results: Results) -> list[Verdict]:
    """The verdict on every experiment of the plan, in its order."""
    return [_verdict(experiment, results) for experiment in plan.experiments.values()]


def _verdict(experiment: Experiment, results: Results) -> Verdict:
    judged = tuple(_judged(criterion, experiment, results) for criterion in experiment.criteria)
    outcomes = [entry.outcome for entry in judged if entry.outcome != "not applicable"]
    answer: Answer = "not yet"
    if "fails" in outcomes:
        answer = "refuted"
    elif outcomes and "undecided" not in outcomes:
        answer = "accepted"
    return Verdict(experiment, answer, judged)


def _judged(criterion: Criterion, experiment: Experiment, results: Results) -> Judged:
    bound, at_least = _bound(criterion, experiment, results)
    value = MEASURES[criterion.measure](results, experiment.key)
    if value is not None and math.isnan(value):
        value = None
    outcome: Outcome
    if criterion.only and results.environment["device_type"] not in criterion.only:
        outcome = "not applicable"
    elif value is None:
        outcome = "undecided"
    else:
        outcome = "holds" if (value >= bound if at_least else value <= bound) else "fails"
    return Judged(criterion, value, bound, outcome)


def _bound(criterion: Criterion, experiment: Experiment, results: Results) -> tuple[float, bool]:
    """The bound, and whether values have to be at least that."""
    if criterion.at_least_target:
        return float(experiment.settings[results.mode]["target_accuracy"]), True
    if criterion.at_least is not None:
        return criterion.at_least, True
    assert criterion.at_most is not None
    return criterion.at_most, False


# Measures of several experiments ------------------------------------------------------------------


def _largest(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return max(found, default=None)


def _our_ways(results: Results, key: str) -> list[Way]:
    timed = results.timed(key)
    return [way for _, ways in timed for name, way in ways.items() if name in (OURS, "full")]


def _gpu_only(results: Results, key: str) -> float | None:
    """1 if every audit of TorchVK compiled found all work on the GPU, else 0."""
    audits = [way["facts"]["audit"]["gpu_only"] for way in _our_ways(results, key)]
    training = results.trainings(key).get(OURS)
    if training is not None:
        audits.append(training["audit"]["gpu_only"])
    return float(all(audits)) if audits else None


def _ratio_to(other: str) -> Callable[[Results, str], float | None]:
    """Time of TorchVK compiled over that of another way: the worst of all cases."""

    def measure(results: Results, key: str) -> float | None:
        return _worst_ratio(results.timed(key), other)

    return measure


def _worst_ratio(
    timed: Iterable[tuple[Mapping[str, Any], Mapping[str, Way]]], other: str
) -> float | None:
    ratios = (ratio(ways, OURS, other) for _, ways in timed)
    return _largest(r.median for r in ratios if r is not None)


# E1 -----------------------------------------------------------------------------------------------


def _largest_error(results: Results, key: str) -> float | None:
    """Largest error of TorchVK compiled over all cases, as `workloads` defines it."""
    return _largest(way["check"].get("error") for way in _our_ways(results, key))


def _at_largest(other: str) -> Callable[[Results, str], float | None]:
    """Time of TorchVK compiled over that of another way, at the largest size."""

    def measure(results: Results, key: str) -> float | None:
        timed = [entry for entry in results.timed(key, workload="add") if OURS in entry[1]]
        if not timed:
            return None
        found = ratio(max(timed, key=lambda entry: entry[0]["n"])[1], OURS, other)
        return None if found is None else found.median

    return measure


def _bandwidth_share(results: Results, key: str) -> float | None:
    """Bytes per second of the largest addition over those of the copy of that size."""
    sums = {case["n"]: ways for case, ways in results.timed(key, workload="add") if OURS in ways}
    copies = {case["n"]: ways for case, ways in results.timed(key, workload="copy")}
    sizes = [n for n in sums if "vk-eager" in copies.get(n, {})]
    if not sizes:
        return None
    n = max(sizes)
    return bandwidth(sums[n][OURS]) / bandwidth(copies[n]["vk-eager"])


def bandwidth(way: Way) -> float:
    """Bytes per second at the median, counting what the work has to move."""
    return way["facts"]["moved_bytes"] / summary(way["seconds"]).median


# E2 -----------------------------------------------------------------------------------------------


def _error_of(dtype: str) -> Callable[[Results, str], float | None]:
    """Largest error of TorchVK's products of one dtype."""

    def measure(results: Results, key: str) -> float | None:
        timed = results.timed(key, dtype=dtype)
        return _largest(ways[OURS]["check"]["error"] for _, ways in timed if OURS in ways)

    return measure


def _worst_layout(results: Results, key: str) -> float | None:
    """Slowest layout over NN of the same size and dtype, from 512 on."""
    times = {
        (case["dtype"], case["n"], case["layout"]): summary(ways[OURS]["seconds"]).median
        for case, ways in results.timed(key)
        if OURS in ways and case["n"] >= _LAYOUT_SIZE
    }
    pairs = [(t, times.get((dtype, n, "NN"))) for (dtype, n, _), t in times.items()]
    return _largest(t / base for t, base in pairs if base)


def _worst_float32(other: str, smallest: int) -> Callable[[Results, str], float | None]:
    """Worst ratio to another way over float32 products from a size on."""

    def measure(results: Results, key: str) -> float | None:
        timed = [e for e in results.timed(key, dtype="float32") if e[0]["n"] >= smallest]
        return _worst_ratio(timed, other)

    return measure


# E3 and E4 ----------------------------------------------------------------------------------------


def _accuracy(results: Results, key: str) -> float | None:
    """Test accuracy of TorchVK compiled after the last epoch."""
    training = results.trainings(key).get(OURS)
    return None if training is None else training["epochs"][-1]["accuracy"]


def _accuracy_below_cpu(results: Results, key: str) -> float | None:
    """The CPU's accuracy minus ours, after the last epoch."""
    trainings = results.trainings(key)
    if OURS not in trainings or "cpu-eager" not in trainings:
        return None
    ours, cpu = (trainings[name]["epochs"][-1]["accuracy"] for name in (OURS, "cpu-eager"))
    return cpu - ours


def _loss_gap(results: Results, key: str) -> float | None:
    """Largest relative difference of the first ten losses of our training to the CPU's."""
    trainings = results.trainings(key)
    if OURS not in trainings or "cpu-eager" not in trainings:
        return None
    return loss_gap(trainings[OURS]["losses"], trainings["cpu-eager"]["losses"])


# E5 -----------------------------------------------------------------------------------------------


def _memory_records(results: Results, key: str) -> list[Mapping[str, Any]]:
    return [record for record in results.of(key) if "attempts" in record]


def _fits(results: Results, key: str) -> float | None:
    """1 if every workload without recomputation trains in 6 GiB, else 0."""
    found = [
        attempt["outcome"] == "fits"
        for record in _memory_records(results, key)
        if not record["case"]["recompute"]
        for attempt in record["attempts"]
        if attempt["limit_mib"] == _SIX_GIB_MIB
    ]
    failed = [record for record in results.of(key) if "failure" in record]
    return float(all(found) and not failed) if found else None


def _goes_on(results: Results, key: str) -> float | None:
    """1 if every attempt that did not fit ended in OutOfMemoryError and the process trained on, else 0."""
    found = [
        attempt["outcome"] == "out of memory" and attempt["goes_on"]
        for record in _memory_records(results, key)
        for attempt in record["attempts"]
        if attempt["outcome"] != "fits"
    ]
    return float(all(found)) if found else None


def _loss_gap_under_limits(results: Results, key: str) -> float | None:
    """Largest relative difference of losses under a limit to those without."""
    return _largest(
        loss_gap(attempt["losses"], record["unlimited"]["losses"])
        for record in _memory_records(results, key)
        for attempt in record["attempts"]
        if attempt["outcome"] == "fits"
    )


def _recompute_ratio(results: Results, key: str) -> float | None:
    """Least limit with recomputation over that without; the worst workload."""
    least = {
        (record["case"]["workload"], record["case"]["recompute"]): record["least_mib"]
        for record in _memory_records(results, key)
        if record["least_mib"]
    }
    return _largest(
        least[name, True] / value
        for (name, recompute), value in least.items()
        if not recompute and (name, True) in least
    )


def _time_at_least(results: Results, key: str) -> float | None:
    """Step time at the least limit over that without one; the worst workload, without recomputation."""
    return _largest(
        summary(record["at_least"]["limited"]).median
        / summary(record["at_least"]["unlimited"]).median
        for record in _memory_records(results, key)
        if record["at_least"] and not record["case"]["recompute"]
    )


# E6 -----------------------------------------------------------------------------------------------


def _ablated_losses(results: Results, key: str) -> float | None:
    """Largest relative difference of any ablation's losses to the full system's."""
    return _largest(
        loss_gap(way["check"]["losses"], ways["full"]["check"]["losses"])
        for _, ways in results.timed(key)
        if "full" in ways
        for way in ways.values()
    )


def _without(mechanism: str) -> Callable[[Results, str], float | None]:
    """Time without a mechanism over that of the full system; the workload that needs it most."""

    def measure(results: Results, key: str) -> float | None:
        ratios = (ratio(w, f"without {mechanism}", "full") for _, w in results.timed(key))
        return _largest(r.median for r in ratios if r is not None)

    return measure


def _memory_without_planning(results: Results, key: str) -> float | None:
    """Peak of allocated memory without planning over that of the full system; the workload that needs it most."""
    peaks = (
        [
            ways[name]["facts"]["memory"]["allocated_peak_bytes"]
            for name in ("without memory_planning", "full")
        ]
        for _, ways in results.timed(key)
        if {"without memory_planning", "full"} <= ways.keys()
    )
    return _largest(without / full for without, full in peaks)


def _cold_over_warm(results: Results, key: str) -> float | None:
    """First step with empty caches over the median with filled ones; the smallest of all workloads."""
    ratios = [
        record["cold_seconds"] / summary(record["warm_seconds"]).median
        for record in results.of(key)
        if "cold_seconds" in record
    ]
    return min(ratios, default=None)


def _smallest_upper(results: Results, key: str) -> float | None:
    """Smallest upper end of the 95 % intervals of time without a mechanism over time with it."""
    ratios = (
        ratio(ways, name, "full")
        for _, ways in results.timed(key)
        for name in ways
        if name.startswith("without ")
    )
    return min((r.upper for r in ratios if r is not None), default=None)


MEASURES: dict[str, Callable[[Results, str], float | None]] = {
    "gpu_only": _gpu_only,
    "largest_error": _largest_error,
    "bandwidth_share_of_copy": _bandwidth_share,
    "worst_ratio_to_vk_eager": _ratio_to("vk-eager"),
    "ratio_to_torchvulkan_at_largest": _at_largest("torchvulkan"),
    "ratio_to_cuda_eager_at_largest": _at_largest("cuda-eager"),
    "largest_error_float32": _error_of("float32"),
    "largest_error_float16": _error_of("float16"),
    "worst_layout_ratio": _worst_layout,
    "worst_ratio_to_cuda_eager_float32": _worst_float32("cuda-eager", _LIBRARY_SIZE),
    "worst_ratio_to_torchvulkan_float32": _worst_float32("torchvulkan", 0),
    "accuracy": _accuracy,
    "accuracy_below_cpu": _accuracy_below_cpu,
    "loss_gap": _loss_gap,
    "ratio_to_vk_eager": _ratio_to("vk-eager"),
    "ratio_to_torchvulkan": _ratio_to("torchvulkan"),
    "ratio_to_cuda_eager": _ratio_to("cuda-eager"),
    "ratio_to_cpu_eager": _ratio_to("cpu-eager"),
    "fits_in_6_gib": _fits,
    "goes_on_after_out_of_memory": _goes_on,
    "loss_gap_under_limits": _loss_gap_under_limits,
    "worst_recompute_memory_ratio": _recompute_ratio,
    "worst_time_ratio_at_least_limit": _time_at_least,
    "loss_gap_of_ablations": _ablated_losses,
    "ratio_without_fusion": _without("fusion"),
    "ratio_without_replay": _without("replay"),
    "memory_ratio_without_planning": _memory_without_planning,
    "cold_over_warm_first_step": _cold_over_warm,
    "smallest_upper_ratio": _smallest_upper,
}
