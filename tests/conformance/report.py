"""What a run came to: a summary line, a JSON file, the coverage table.

In: results. Out: text. Forbidden: leaving out a verdict.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from .cases import DATABASES, DTYPES, MODES, Selection, select
from .records import Result, Verdict

_MARKS = {Verdict.PASS: "✓", Verdict.REFUSED: "–", Verdict.WRONG: "✗", Verdict.CRASH: "!"}
_SHORT = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "bool": "bool",
}
_TITLES = {"op": "Operators", "module": "Modules", "optimizer": "Optimizers"}


def counts(results: Iterable[Result]) -> Counter[Verdict]:
    """Number of (case, direction) pairs by verdict."""
    return Counter(direction.verdict for result in results for _, direction in result.directions())


def summary_line(results: Iterable[Result]) -> str:
    """``conformance: P pass, R refused, W wrong, C crash``."""
    found = counts(results)
    return "conformance: " + ", ".join(f"{found[verdict]} {verdict.value}" for verdict in Verdict)


def breakdown(results: Sequence[Result]) -> list[tuple[str, Counter[Verdict]]]:
    """Counts for every database, mode, direction and dtype that has results."""
    groups: dict[str, Counter[Verdict]] = {}
    for database in DATABASES:
        for mode in MODES:
            for way in ("forward", "backward"):
                for dtype in DTYPES:
                    name = f"{database} {mode} {way} {dtype}"
                    groups[name] = Counter(
                        direction.verdict
                        for result in results
                        if (result.case.database, result.case.mode, result.case.dtype)
                        == (database, mode, dtype)
                        for direction_name, direction in result.directions()
                        if direction_name == way
                    )
    return [(name, found) for name, found in groups.items() if found]


def write_json(results: Sequence[Result], path: Path) -> None:
    """All results, and their counts, as one JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "summary": {verdict.value: counts(results)[verdict] for verdict in Verdict},
        "breakdown": {
            name: {verdict.value: found[verdict] for verdict in Verdict}
            for name, found in breakdown(results)
        },
        "cases": [result.to_json() for result in results],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_table(results: Sequence[Result], path: Path, device: str) -> None:
    """The coverage table as Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_table_lines(results, device)) + "\n")


def _table_lines(results: Sequence[Result], device: str) -> list[str]:
    lines = [
        "# Coverage",
        "",
        "Entries of PyTorch's databases of operators, modules and optimizers against CPU eager. "
        f"Written by `make conformance` on {device}, torch {torch.__version__}: {_extent(results)}.",
        "",
        "Each cell is forward, then backward: ✓ torch's result, – refused with "
        "`UnsupportedOperatorError`, ✗ another result, ! another exception. "
        "Empty: CPU eager does not support it, or it was not run.",
        "",
        f"`{summary_line(results)}`",
        "",
        _measures(results),
        "",
        "| | " + " | ".join(verdict.value for verdict in Verdict) + " |",
        "|---|" + "---:|" * len(Verdict),
    ]
    lines += [
        f"| {name} | " + " | ".join(str(found[verdict]) for verdict in Verdict) + " |"
        for name, found in breakdown(results)
    ]
    for database in DATABASES:
        for mode in MODES:
            chosen = [r for r in results if (r.case.database, r.case.mode) == (database, mode)]
            if chosen:
                lines += ["", f"## {_TITLES[database]}, {mode}", "", *_rows(chosen)]
    return lines


def _extent(results: Sequence[Result]) -> str:
    """How much of the databases the results cover, and with which revisions they were made."""
    databases = {result.case.database for result in results}
    dtypes = {result.case.dtype for result in results}
    modes = {result.case.mode for result in results}
    whole = select(
        Selection(databases=sorted(databases), dtypes=sorted(dtypes), modes=sorted(modes))
    )
    revisions = Counter(result.revision or "an unknown revision" for result in results)
    made = ", ".join(f"{count} with {name}" for name, count in revisions.most_common())
    return f"{len(results)} of {len(whole)} cases of these dtypes and modes ({made})"


def _measures(results: Sequence[Result]) -> str:
    """By what the samples that exceed the usual tolerance are right."""
    directions = [direction for result in results for _, direction in result.directions()]
    elsewhere = sorted(
        {r.case.name for r in results for _, direction in r.directions() if direction.elsewhere}
    )
    names = f" ({', '.join(elsewhere)})" if elsewhere else ""
    return (
        f"Of {sum(sum(d.counts.values()) for d in directions)} samples, {sum(d.exact for d in directions)} have "
        "elements beyond torch's tolerance that are no further from the result in float64 than CPU eager's, there or "
        "at its worst (in units of the tolerance); "
        f"{sum(d.elsewhere for d in directions)} need the tolerance that their entry names for other tests on "
        f"CUDA{names}; {sum(d.free for d in directions)} are one of several right results, and were checked by what "
        "defines them."
    )


def _rows(results: Sequence[Result]) -> list[str]:
    dtypes = [dtype for dtype in DTYPES if any(r.case.dtype == dtype for r in results)]
    cells = {(result.case.name, result.case.dtype): _cell(result) for result in results}
    names = sorted({result.case.name for result in results})
    header = "| name | " + " | ".join(_SHORT[dtype] for dtype in dtypes) + " |"
    rows = [
        f"| {name} | " + " | ".join(cells.get((name, dtype), "") for dtype in dtypes) + " |"
        for name in names
    ]
    return [header, "|---|" + ":---:|" * len(dtypes), *rows]


def _cell(result: Result) -> str:
    return " ".join(_MARKS[direction.verdict] for _, direction in result.directions())
