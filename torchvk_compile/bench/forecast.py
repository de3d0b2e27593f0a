"""Predicting the experiments for the RX 5600 XT, and how far the same method is off where it can be checked.

In: a plan, results of known cards. Out: a record for the results file; errors.
Forbidden: numbers that come from neither `prediction` nor results.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchvk_compile.bench.navi10 import compile_for_navi10
from torchvk_compile.bench.plan import Mode, Plan
from torchvk_compile.bench.prediction import DISPATCH_SECONDS, limit_of, predict
from torchvk_compile.bench.results import Results
from torchvk_compile.bench.summaries import summary
from torchvk_compile.bench.verdicts import OURS
from torchvk_compile.cards import RX_5600_XT, Card, card_of

_MODEL_SETTINGS = ("model", "hidden", "channels", "batch", "learning_rate", "seed")
_MNIST_INPUTS = 784


@dataclass(frozen=True)
class Check:
    """Predicted and measured seconds of one case on a card that both are known for."""

    card: Card
    experiment: str
    case: Mapping[str, Any]
    predicted: float
    measured: float

    @property
    def factor(self) -> float:
        """Measured over predicted; above 1 the card was slower than predicted."""
        return self.measured / self.predicted


def forecast(plan: Plan, mode: Mode) -> dict[str, Any]:
    """A record with a prediction for the RX 5600 XT of every experiment of a plan.

    Raises UsageError without Mesa's RADV driver.
    """
    cases = list(predicted_cases(plan, mode))
    compiled = compile_for_navi10([case for _, case in cases])
    entries = []
    for (experiment, case), found in zip(cases, compiled, strict=True):
        entry: dict[str, Any] = {"experiment": experiment, "case": case}
        if "failure" in found:
            entry["failure"] = found["failure"]
        else:
            kernels = found["kernels"]
            entry |= dataclasses.asdict(predict(kernels, RX_5600_XT))
            entry |= {
                "reserved_peak_bytes": found["reserved_peak_bytes"],
                "most_vgprs": max((k["statistics"]["vgprs"] for k in kernels), default=0),
                "spilling_kernels": sum(bool(k["statistics"]["spilled_vgprs"]) for k in kernels),
                "kernels": _points(kernels),
            }
        entries.append(entry)
    return {
        "kind": "prediction",
        "card": RX_5600_XT.name,
        "source": RX_5600_XT.source,
        "mode": mode,
        "plan": plan.sha256,
        "cases": entries,
    }


def predicted_cases(plan: Plan, mode: Mode) -> Iterable[tuple[str, dict[str, Any]]]:
    """Experiment and case of everything that is predicted."""
    settings = {key: experiment.settings[mode] for key, experiment in plan.experiments.items()}
    for n in settings["E1"]["sizes"]:
        yield "E1", {"workload": "add", "n": n}
    for dtype in settings["E2"]["dtypes"]:
        for layout in settings["E2"]["layouts"]:
            for n in settings["E2"]["sizes"]:
                yield "E2", {"workload": "matmul", "n": n, "dtype": dtype, "layout": layout}
    for key in ("E3", "E4"):
        model = {name: settings[key][name] for name in _MODEL_SETTINGS if name in settings[key]}
        more = {"inputs": _MNIST_INPUTS} if model["model"] == "mlp" else {}
        yield key, {"workload": "train", **model, **more}
    for key in ("E5", "E6"):
        variants: dict[str, list[Any]] = (
            {"recompute": [False, True]} if key == "E5" else {"without": [[], ["fusion"]]}
        )
        for model in settings[key]["workloads"].values():
            for name, values in variants.items():
                for value in values:
                    seed = settings[key]["seed"]
                    yield key, {"workload": "train", "seed": seed, name: value, **model}


def checks(results: Results) -> list[Check]:
    """Predictions for the card that results come from, beside what was measured; empty for an unknown card."""
    card = card_of(results.environment["device"])
    if card is None:
        return []
    found = []
    for experiment in ("E1", "E2", "E3", "E4"):
        for case, ways in results.timed(experiment):
            kernels = ways.get(OURS, {}).get("facts", {}).get("kernels")
            if kernels:
                measured = summary(ways[OURS]["seconds"]).median
                predicted = predict(kernels, card).seconds
                found.append(Check(card, experiment, case, predicted, measured))
    return found


def typical_error(found: Sequence[Check]) -> tuple[float, float]:
    """Median factor, and the factor that two thirds of the cases stay within, either way."""
    factors = [check.factor for check in found]
    distances = sorted(abs(math.log(factor)) for factor in factors)
    return statistics.median(factors), math.exp(distances[math.ceil(len(distances) * 2 / 3) - 1])


def _points(kernels: Iterable[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    """Bytes, operations and predicted seconds of every distinct dispatch, for a roofline plot."""
    return sorted(
        {
            (
                kernel["read_bytes"] + kernel["written_bytes"],
                kernel["flops"],
                DISPATCH_SECONDS + limit_of(kernel, RX_5600_XT)[1],
            )
            for kernel in kernels
        }
    )
