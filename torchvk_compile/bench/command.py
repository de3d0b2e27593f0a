"""The course of ``torchvk bench``: check what was asked, load the data, run, report.

In: options of the command line. Out: result files, a report, the exit status is the command's.
Forbidden: measuring (runner.py), formatting (report).
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from torchvk_compile.bench import data, environment, peers
from torchvk_compile.bench.download import download
from torchvk_compile.bench.forecast import forecast
from torchvk_compile.bench.plan import Mode, Plan, load_plan
from torchvk_compile.bench.records import RESULTS_FILE, ResultFile, read_records
from torchvk_compile.bench.results import latest
from torchvk_compile.bench.runner import Run, execute
from torchvk_compile.bench.ways import find_ways
from torchvk_compile.demo.command import chosen_device
from torchvk_compile.errors import UsageError
from torchvk_compile.shaders import find_compiler

_MOST_WARNINGS = 6


@dataclass(frozen=True)
class BenchOptions:
    """The command line of ``torchvk bench``; None means the default."""

    experiments: tuple[str, ...] = ()
    quick: bool = False
    data: Path | None = None
    download: bool = False
    output: Path = Path("results")
    device: str = "vk"
    plan: Path | None = None
    fresh: bool = False
    peers: bool = True


def run(options: BenchOptions) -> Path:
    """Run the experiments and write the report. Returns the directory with both.

    Raises UsageError or CorruptDataError before anything is measured if an argument is no good, VulkanError if there is
    no device and ShaderCompileError if there is no Slang compiler. Interrupted, it keeps the finished cases and goes on
    from there the next time.
    """
    console = Console(stderr=True)
    plan = load_plan(options.plan)
    keys = chosen_experiments(plan, options.experiments)
    device = chosen_device(options.device)
    find_compiler()
    mode: Mode = "quick" if options.quick else "full"
    images = _images(plan, mode, keys, options, console)
    directory = _directory(options.output, device)
    if not plan.is_committed:
        console.print("[yellow]This is not the committed plan; the report will say so.[/]")
    wanted = {way for key in keys for way in plan.experiments[key].settings[mode].get("ways", ())}
    field = find_ways(device, wanted, peers=options.peers)
    for name, reason in field.absent.items():
        console.print(f"Without {name}: {reason}", style="dim", highlight=False, soft_wrap=True)
    results = ResultFile(directory, fresh=options.fresh)
    before = sum(record["kind"] == "result" for record in results.records)
    if before:
        console.print(f"{before} results are in {results.path} already; --fresh begins anew.")
    try:
        chosen = Run(plan, mode, keys, device, field, images)
        warnings = execute(chosen, results, console)
        for warning in warnings[:_MOST_WARNINGS]:
            console.print(f"[yellow]![/] {warning}", highlight=False, soft_wrap=True)
        if len(warnings) > _MOST_WARNINGS:
            console.print(f"and {len(warnings) - _MOST_WARNINGS} more warnings in the report")
    except KeyboardInterrupt:
        console.print(f"Interrupted; what is finished is kept in {results.path}.")
        raise
    finally:
        field.close()
        results.close()
    _report(directory, plan, results.records, console)
    return directory


def report(directory: Path, plan_path: Path | None, *, other_plan: bool) -> None:
    """Write the report of results that are on disk.

    Args:
        directory: with ``results.jsonl``.
        plan_path: the plan they were made with, if not the installed one.
        other_plan: report although the results' plan is not this one; the report says so.

    Raises:
        UsageError: when there are no results, or results of another plan and `other_plan` is false.
    """
    plan = load_plan(plan_path)
    records = _results_in(directory)
    used = {record["plan"] for record in records if record["kind"] == "result"}
    foreign = sorted(used - {plan.sha256})
    if foreign and not other_plan:
        raise UsageError(
            f"{len(foreign)} other plan(s) were used for results in {directory}: {foreign[0][:12]}…, not "
            f"{plan.sha256[:12]}…. Give theirs with --plan FILE, or report them as results of another plan with "
            "--other-plan"
        )
    _report(directory, plan, records, Console(stderr=True))


def _results_in(directory: Path) -> list[dict[str, Any]]:
    """All records of a directory. Raises UsageError unless there is a result among them."""
    records = read_records(directory / RESULTS_FILE)
    if not any(record["kind"] == "result" for record in records):
        raise UsageError(f"{directory / RESULTS_FILE} holds no results yet")
    return records


def predict(directory: Path, plan_path: Path | None) -> None:
    """Add a prediction for the RX 5600 XT to results that are there, in their mode, and write the report again.

    Raises UsageError when there are no results, or without Mesa's RADV driver.
    """
    plan = load_plan(plan_path)
    _results_in(directory)
    results = ResultFile(directory)
    try:
        console = Console(stderr=True)
        with console.status("Compiling every experiment for Navi 10"):
            results.append(forecast(plan, latest(results.records).mode))
        _report(directory, plan, results.records, console)
    finally:
        results.close()


def install_peer() -> None:
    """Install torchvulkan into an environment of its own."""
    console = Console(stderr=True)
    with console.status("Installing torchvulkan into an environment of its own"):
        python = peers.install_torchvulkan()
    console.print(f"torchvulkan is ready: {python}", highlight=False, soft_wrap=True)


def chosen_experiments(plan: Plan, wanted: tuple[str, ...]) -> list[str]:
    """Keys of the plan, in its order; all if none is wanted. Raises UsageError for an unknown one."""
    unknown = [key for key in wanted if key.upper() not in plan.experiments]
    if unknown:
        known = ", ".join(f"{key} ({e.title})" for key, e in plan.experiments.items())
        raise UsageError(f"no experiment {unknown[0]!r}; there is {known}")
    chosen = {key.upper() for key in wanted} or set(plan.experiments)
    return [key for key in plan.experiments if key in chosen]


def _images(
    plan: Plan, mode: Mode, keys: list[str], options: BenchOptions, console: Console
) -> dict[str, Any]:
    directory = options.data
    if options.download:
        directory = directory or Path("data")
        download(directory, lambda text: console.print(text, highlight=False, soft_wrap=True))
    if directory is not None:
        data.check_directory(directory)
    found: dict[str, data.Images] = {}
    if "E3" in keys:
        found["E3"] = data.load_mnist(directory)
    if "E4" in keys:
        count = plan.experiments["E4"].settings[mode]["synthetic_images"]
        found["E4"] = data.load_cifar10(directory, count)
    for key in found:
        settings = plan.experiments[key].settings[mode]
        found[key] = found[key].first(settings.get("train_images"), settings.get("test_images"))
        data.check_enough(found[key], settings["batch"])
    return found


def _directory(output: Path, device: torch.device) -> Path:
    name = torch.vk.get_device_name(device)  # type: ignore[attr-defined]
    return output / environment.device_slug(name) / datetime.date.today().isoformat()


def _report(directory: Path, plan: Plan, records: list[dict[str, Any]], console: Console) -> None:
    try:
        from torchvk_compile.bench.report import write_report
    except ModuleNotFoundError as error:
        raise UsageError(
            f"results are in {directory}; their report needs {error.name}: pip install "
            f"'torchvk-compile[bench]', then torchvk bench report {directory}"
        ) from None
    html, markdown = write_report(directory, plan, records)
    console.print(f"Report: {html}\n        {markdown}", highlight=False, soft_wrap=True)
