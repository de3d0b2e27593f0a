"""Reports: one page that needs nothing else, verdicts by the plan, other plans named as such."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from torchvk_compile.bench import command
from torchvk_compile.bench.plan import load_plan, plan_path
from torchvk_compile.bench.records import ResultFile
from torchvk_compile.bench.results import latest
from torchvk_compile.bench.verdicts import judge
from torchvk_compile.errors import UsageError

_AUDIT = {"gpu_only": True, "dispatches": 3, "recordings": 0, "steps": 3}
_MEMORY = {"allocated_peak_bytes": 2 << 20, "reserved_peak_bytes": 4 << 20}
_KERNEL = {
    "plan": "graph0_plan0",
    "kernel": "add_0",
    "read_bytes": 8_000,
    "written_bytes": 4_000,
    "flops": 1_000,
    "workgroups": 4,
    "workgroup_size": 256,
}


def _environment(device: str = "Some <GPU>") -> dict[str, Any]:
    return {
        "kind": "environment",
        "id": "e",
        "device": device,
        "device_type": "discrete",
        "driver": "a driver",
        "api_version": "1.3.0",
        "processor": "a processor",
        "processor_count": 2,
        "torch_threads": 2,
        "cuda_device": None,
        "versions": {"torch": "2.13.0"},
        "clocks": {},
        "load_average": 0.5,
        "absent": {"torchvulkan": "not installed"},
    }


def _way(seconds: float, error: float = 0.0, **facts: Any) -> dict[str, Any]:
    known = {"moved_bytes": 12_000, "operations": 2_000, "audit": _AUDIT, "memory": _MEMORY}
    return {
        "seconds": [seconds * f for f in (1.0, 1.01, 0.99, 1.0)],
        "at": [0.0, 0.1, 0.2, 0.3],
        "calls": 1,
        "check": {"error": error, "losses": [2.0, 1.0]},
        "facts": known | facts,
    }


def _result(experiment: str, case: dict[str, Any], **body: Any) -> dict[str, Any]:
    identity = {"mode": "full", "plan": load_plan().sha256, "environment": "e"}
    label = " ".join(map(str, case.values()))
    return {
        "kind": "result",
        "experiment": experiment,
        "case": case,
        "label": label,
        **identity,
        **body,
    }


def _training(seconds: float) -> dict[str, Any]:
    epochs = [{"accuracy": a, "seconds": s * seconds} for s, a in ((1, 0.9), (2, 0.97))]
    return {"losses": [2.3, 2.0, 1.5], "epochs": epochs, "audit": _AUDIT}


def _attempt(limit: int, outcome: str) -> dict[str, Any]:
    entry = {"limit_mib": limit, "outcome": outcome, **_MEMORY}
    return entry | ({"losses": [2.0, 1.0]} if outcome == "fits" else {"goes_on": True})


def _memory(recompute: bool, least: int) -> dict[str, Any]:
    case = {"workload": "gpt", "model": "gpt", "batch": 4, "recompute": recompute}
    body = {
        "unlimited": {**_attempt(0, "fits"), "limit_mib": None},
        "attempts": [_attempt(6144, "fits"), _attempt(8, "out of memory")],
        "least_mib": least,
        "at_least": {"unlimited": [1.0, 1.0], "limited": [1.2, 1.2]},
        "timeline": [
            {"phase": phase, "allocated_bytes": 1 << 20, "reserved_bytes": 2 << 20}
            for phase in ("start", "forward", "backward", "update")
        ],
    }
    return _result("E5", case, **body)


def _records() -> list[dict[str, Any]]:
    step = {"workload": "train", "model": "mlp", "batch": 64}
    slow_eager = {"vk-compiled": _way(1.0), "vk-eager": _way(4.0), "cpu-eager": _way(0.5)}
    trainings = {"vk-compiled": _training(1.0), "cpu-eager": _training(0.5)}
    product = {"workload": "matmul", "n": 1024, "dtype": "float32", "layout": "NN"}
    return [
        _environment(),
        _result(
            "E1",
            {"workload": "add", "n": 1000},
            ways={
                "vk-compiled": _way(1e-6, kernels=[_KERNEL]),
                "vk-eager": _way(1.2e-6),
                "torchvulkan": {"failure": "RuntimeError: | no | luck"},
            },
        ),
        _result("E1", {"workload": "copy", "n": 1000}, ways={"vk-eager": _way(0.9e-6)}),
        _result("E2", product, ways={"vk-compiled": _way(0.1, 1e-3), "cpu-eager": _way(0.1)}),
        _result("E3", step, ways=slow_eager),
        _result("E3", {**step, "data": "MNIST", "training": 2}, trainings=trainings),
        _memory(False, 100),
        _memory(True, 60),
        _result(
            "E6",
            {**step, "name": "mlp"},
            ways={"full": _way(1.0), "without fusion": _way(2.0), "without replay": _way(1.5)},
        ),
        _result(
            "E6",
            {**step, "name": "mlp", "start": "cold and warm"},
            cold_seconds=9.0,
            warm_seconds=[2.0, 3.0],
        ),
    ]


def _directory(tmp_path: Path, records: list[dict[str, Any]]) -> Path:
    directory = tmp_path / "device" / "2026-01-01"
    results = ResultFile(directory)
    for record in records:
        results.append(record)
    results.close()
    return directory


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    directory = _directory(tmp_path, _records())
    command.report(directory, None, other_plan=False)
    page = (directory / "report.html").read_text(encoding="utf-8")
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert links and all(link.startswith("#") for link in links), links
    assert not re.findall(r"<link|<script|@import|url\((?!#)", page)
    assert page.count("<svg") == 7
    identifiers = re.findall(r'\bid="([^"]*)"', page)
    assert {"E1", "E6", "environment"} <= set(identifiers)
    assert "Some &lt;GPU&gt;" in page and "Some <GPU>" not in page


def test_both_forms_name_losses_failures_and_data(tmp_path: Path) -> None:
    directory = _directory(tmp_path, _records())
    command.report(directory, None, other_plan=False)
    for name in ("report.html", "report.md"):
        text = (directory / name).read_text(encoding="utf-8")
        assert "Where TorchVK loses" in text, name
        assert "torchvulkan, eager failed: RuntimeError: | no | luck" in text, name
        assert "Data: MNIST" in text, name


def test_verdicts_follow_the_plan() -> None:
    plan, results = load_plan(), latest(_records())
    verdicts = {verdict.experiment.key: verdict for verdict in judge(plan, results)}
    assert verdicts["E1"].answer == "not yet"  # torchvulkan failed, so its criterion is undecided
    assert verdicts["E2"].answer == "refuted"
    assert verdicts["E4"].answer == "not yet"
    assert verdicts["E5"].answer == "accepted"
    values = {j.criterion.measure: j.value for v in verdicts.values() for j in v.criteria}
    assert values["ratio_to_vk_eager"] == pytest.approx(0.25)
    assert values["worst_recompute_memory_ratio"] == pytest.approx(0.6)
    assert values["cold_over_warm_first_step"] == pytest.approx(3.6)
    assert values["ratio_without_fusion"] == pytest.approx(2.0)
    assert values["bandwidth_share_of_copy"] == pytest.approx(0.9)
    assert values["ratio_to_cuda_eager"] is None


def test_a_criterion_for_other_devices_does_not_count() -> None:
    records = _records()
    records[0]["device_type"] = "cpu"
    (verdict, *_) = judge(load_plan(), latest(records))
    outcomes = {j.criterion.measure: j.outcome for j in verdict.criteria}
    assert outcomes["ratio_to_cuda_eager_at_largest"] == "not applicable"


def test_a_failed_case_of_an_accepted_experiment_is_not_passed_over() -> None:
    records = _records()
    records.append(_result("E5", {"workload": "cnn"}, failure="RuntimeError: broken"))
    verdicts = {v.experiment.key: v for v in judge(load_plan(), latest(records))}
    assert verdicts["E5"].answer == "refuted"


def test_results_of_another_plan_are_refused_until_asked_for(tmp_path: Path) -> None:
    records = [{**r, "plan": "0" * 64} if r["kind"] == "result" else r for r in _records()]
    directory = _directory(tmp_path, records)
    with pytest.raises(UsageError, match="--other-plan"):
        command.report(directory, None, other_plan=False)
    assert not (directory / "report.html").exists()
    command.report(directory, None, other_plan=True)
    assert "made with another plan" in (directory / "report.html").read_text(encoding="utf-8")


def test_a_plan_that_was_never_committed_is_named(tmp_path: Path) -> None:
    changed = tmp_path / "plan.toml"
    text = plan_path().read_text(encoding="utf-8").replace("at_least = 0.7", "at_least = 0.1", 1)
    changed.write_text(text, encoding="utf-8")
    sha256 = load_plan(changed).sha256
    records = [{**r, "plan": sha256} if r["kind"] == "result" else r for r in _records()]
    directory = _directory(tmp_path, records)
    command.report(directory, changed, other_plan=False)
    assert "not the committed one" in (directory / "report.md").read_text(encoding="utf-8")


def test_no_results_no_report(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no results yet"):
        command.report(_directory(tmp_path, [_environment()]), None, other_plan=False)
    with pytest.raises(UsageError, match="cannot read"):
        command.report(tmp_path / "nowhere", None, other_plan=False)


def test_results_of_another_environment_are_left_out() -> None:
    other = {**_records()[1], "environment": "older"}
    results = latest([_environment(), other, *_records()])
    assert results.others == 1
    assert all(record["environment"] == "e" for record in results.records)


def test_predictions_are_marked_and_checked_where_they_can_be(tmp_path: Path) -> None:
    case = {"workload": "add", "n": 1000}
    prediction = {
        "kind": "prediction",
        "card": "Radeon RX 5600 XT",
        "cases": [
            {
                "experiment": "E1",
                "case": case,
                "seconds": 1e-4,
                "bound": "host",
                "moved_bytes": 12_000,
                "flops": 1_000,
                "dispatches": 1,
                "reserved_peak_bytes": 1,
                "most_vgprs": 16,
                "spilling_kernels": 0,
                "kernels": [[12_000, 1_000, 3e-6]],
            },
            {"experiment": "E2", "case": {**case}, "failure": "RuntimeError: no"},
        ],
    }
    directory = _directory(tmp_path, [*_records(), prediction])
    command.report(directory, None, other_plan=False)
    text = (directory / "report.md").read_text(encoding="utf-8")
    assert "**Predicted, not measured.**" in text and "not checked yet" in text
    records = [_environment("NVIDIA H200"), *_records()[1:]]
    known = ResultFile(tmp_path / "nvidia-h200" / "2026-01-02")
    for record in records:
        known.append(record)
    known.close()
    command.report(directory, None, other_plan=False)
    text = (directory / "report.md").read_text(encoding="utf-8")
    assert "Checked on the NVIDIA H200, 1 cases" in text
