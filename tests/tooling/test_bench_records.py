"""Result files: whole lines on the disk at once, unfinished ones cut off, finished cases found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchvk_compile.bench.records import RESULTS_FILE, ResultFile, read_records
from torchvk_compile.bench.results import latest
from torchvk_compile.errors import CorruptDataError, UsageError


def _result(n: int, **more: Any) -> dict[str, Any]:
    case = {"workload": "add", "n": n, "layout": ("N", "N")}
    identity = {"experiment": "E1", "mode": "quick", "plan": "p", "environment": "e"}
    return {"kind": "result", "case": case, **identity, **more}


def test_a_finished_case_is_found_again(tmp_path: Path) -> None:
    first = ResultFile(tmp_path)
    first.append(_result(10))
    first.close()
    again = ResultFile(tmp_path)
    assert again.finished(_result(10))
    assert not again.finished(_result(11))
    assert not again.finished(_result(10) | {"plan": "another"})
    assert not again.finished(_result(10) | {"environment": "another"})


def test_a_failed_case_is_tried_again(tmp_path: Path) -> None:
    results = ResultFile(tmp_path)
    results.append(_result(10, failure="RuntimeError: out of luck"))
    assert not results.finished(_result(10))


def test_what_a_killed_process_left_of_a_line_is_cut_off(tmp_path: Path) -> None:
    results = ResultFile(tmp_path)
    results.append(_result(10))
    results.close()
    path = tmp_path / RESULTS_FILE
    path.write_bytes(path.read_bytes() + b'{"schema": 1, "kind": "resu')
    assert len(read_records(path)) == 1
    again = ResultFile(tmp_path)
    again.append(_result(11))
    assert [record["case"]["n"] for record in read_records(path)] == [10, 11]


def test_beginning_anew_keeps_old_results_aside(tmp_path: Path) -> None:
    for _ in range(3):
        ResultFile(tmp_path, fresh=True).append(_result(10))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "results-1.jsonl",
        "results-2.jsonl",
        RESULTS_FILE,
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nothing of the kind", "line 2: not JSON"),
        ('{"kind": "result"}', "line 2: not a result"),
        ("[1]", "line 2: not a result"),
        ('{"schema": 1, "kind": "result", "experiment": "E1"}', "line 2: result without case"),
        ('{"schema": 1, "kind": "environment"}', "line 2: environment without id"),
    ],
)
def test_a_damaged_file_is_refused_by_line(tmp_path: Path, line: str, complaint: str) -> None:
    ResultFile(tmp_path).append(_result(10))
    path = tmp_path / RESULTS_FILE
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(CorruptDataError, match=complaint):
        ResultFile(tmp_path)


def test_results_without_their_environment_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="not described: e"):
        latest([_result(10)])


def test_an_unwritable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        ResultFile(tmp_path / "file" / "results")
