"""The command line of the conformance suite.

In: arguments. Out: `build/conformance.json`, `docs/coverage.md`, the summary line, an exit
status. Forbidden: throwing results away, unless asked to.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from . import cases, report
from .execution import Limits
from .pool import run_all
from .records import Result, ResultFile, Verdict

_ROOT = Path(__file__).parents[2]
FAILED_BEFORE = Path(__file__).with_name("failed_before.txt")
_BUILD = _ROOT / "build" / "conformance"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected cases that have no result yet.

    Returns:
        0 when nothing selected is wrong or crashes, else 1.
    """
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    selected = cases.select(_selection(options))
    file = ResultFile(options.results)
    if options.fresh:
        file.clear()
    known = file.read()
    again = {Verdict(name) for name in _words(options.again)}
    waiting = [case for case in selected if case.key not in known or known[case.key].worst in again]
    if options.report_only:
        waiting = []
    console.print(f"{len(selected)} cases, {len(waiting)} to run")
    known.update(_run(waiting, file, options, console))
    results = [known[case.key] for case in selected if case.key in known]
    _write(results, options)
    if options.remember:
        _remember(results)
    print(report.summary_line(results))
    failed = report.counts(results)
    return 1 if failed[Verdict.WRONG] or failed[Verdict.CRASH] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="PyTorch's operator, module and optimizer databases on vk against CPU eager.",
    )
    parser.add_argument("--ops", default="", help="shell patterns of entry names, by comma")
    parser.add_argument("--databases", default=",".join(cases.DATABASES))
    parser.add_argument("--dtypes", default=",".join(cases.DTYPES))
    parser.add_argument(
        "--modes",
        default=",".join(cases.DEFAULT_MODES),
        help=f"of {', '.join(cases.MODES)} (default: %(default)s)",
    )
    parser.add_argument("--shard", default="1/1", help="run part i of n, as i/n")
    parser.add_argument("--sample", default="100%", help="share of the cases, as 5%%")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample")
    parser.add_argument(
        "--max-samples", type=int, default=3, help="forward samples of a case; 0 is all"
    )
    parser.add_argument(
        "--max-backward-samples", type=int, default=2, help="backward samples; 0 is all"
    )
    parser.add_argument("--time-limit", type=float, default=180.0, help="seconds for a case")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--again", default="", help="verdicts to run again: wrong,crash")
    parser.add_argument(
        "--remember",
        action="store_true",
        help=f"add what fails to {FAILED_BEFORE.name}, which the tests run again",
    )
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("--results", type=Path, default=_BUILD / "results.jsonl")
    parser.add_argument("--json", type=Path, default=_BUILD.with_suffix(".json"))
    parser.add_argument(
        "--table", type=Path, default=None, help="default: docs/coverage.md for a whole run"
    )
    return parser


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _selection(options: argparse.Namespace) -> cases.Selection:
    index, count = (int(part) for part in options.shard.split("/"))
    return cases.Selection(
        databases=_words(options.databases),
        dtypes=_words(options.dtypes),
        modes=_words(options.modes),
        patterns=_words(options.ops),
        shard=(index, count),
        fraction=float(options.sample.rstrip("%")) / 100,
        seed=options.seed,
    )


def _run(
    waiting: Sequence[cases.Case],
    file: ResultFile,
    options: argparse.Namespace,
    console: Console,
) -> dict[str, Result]:
    found: dict[str, Result] = {}
    if not waiting:
        return found
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    last_word = time.monotonic()
    revision = _revision()
    with progress:
        task = progress.add_task("conformance", total=len(waiting))
        for result in run_all(
            waiting,
            jobs=options.jobs,
            limits=Limits(options.max_samples, options.max_backward_samples),
            limit_s=options.time_limit,
            log_directory=options.results.parent,
            environment={},
        ):
            result = dataclasses.replace(result, revision=revision)
            file.append([result])
            found[result.case.key] = result
            progress.update(task, advance=1, description=report.summary_line(found.values()))
            if result.worst is not Verdict.PASS:
                progress.print(f"{result.worst.value:8} {result.case.key}", markup=False)
            if not sys.stderr.isatty() and time.monotonic() - last_word > 60:
                last_word = time.monotonic()
                console.print(f"{len(found)}/{len(waiting)} {report.summary_line(found.values())}")
    return found


def _write(results: Sequence[Result], options: argparse.Namespace) -> None:
    report.write_json(results, options.json)
    whole = not options.ops and options.shard == "1/1" and options.sample.startswith("100")
    table = options.table or (_ROOT / "docs" / "coverage.md" if whole else None)
    if table is not None:
        report.write_table(results, table, _device_name())


def _remember(results: Sequence[Result]) -> None:
    bad = (Verdict.WRONG, Verdict.CRASH)
    known = {case.key for case in cases.listed(FAILED_BEFORE)}
    keys = [result.case.key for result in results if result.worst in bad]
    with FAILED_BEFORE.open("a") as file:
        file.writelines(f"{key}\n" for key in keys if key not in known)


def _revision() -> str:
    """The sources' commit, with a + where they differ from it; empty outside of a repository."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--abbrev=7", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _device_name() -> str:
    from torchvk_compile import device

    profile = device.profile(0)
    return f"{profile.name} ({profile.driver_name}, {profile.driver_info})"
