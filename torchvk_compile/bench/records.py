"""Results on disk: JSON lines, one finished case each, safe against being interrupted.

In: results as plain data. Out: a file that grows line by line, and what is in it. Forbidden: rewriting lines; keeping a
result in memory only.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchvk_compile.errors import CorruptDataError, UsageError

RESULTS_FILE = "results.jsonl"
SCHEMA = 1

_IDENTITY = ("experiment", "case", "mode", "plan", "environment")
_NEEDED = {"environment": ("id", "time"), "result": _IDENTITY, "prediction": ("cases",)}


class ResultFile:
    """The results of one device on one day.

    Attributes:
        path: of the file.
        records: what it holds, in order.
    """

    def __init__(self, directory: Path, *, fresh: bool = False) -> None:
        """Open or create ``directory/results.jsonl``.

        Args:
            directory: created if need be.
            fresh: begin anew; earlier results move to ``results-1.jsonl``, ``results-2.jsonl``, …

        Raises:
            UsageError: when the directory cannot be written.
            CorruptDataError: when the file holds something else.
        """
        self.path = directory / RESULTS_FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if fresh and self.path.exists():
                self.path.rename(_free_name(directory))
            self._cut_unfinished_line()
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115  (until close)
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from None
        self.records = read_records(self.path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line and have the system put it on the disk."""
        line = {"schema": SCHEMA, "time": _now(), **record}
        self._file.write(json.dumps(line, allow_nan=True) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.records.append(line)

    def close(self) -> None:
        """Close the file; everything is on the disk already."""
        self._file.close()

    def finished(self, identity: Mapping[str, Any]) -> bool:
        """Whether there is a result with this identity (see `identity_of`) that did not fail as a whole."""
        wanted = identity_of(identity)
        return any(
            record["kind"] == "result" and "failure" not in record and identity_of(record) == wanted
            for record in self.records
        )

    def _cut_unfinished_line(self) -> None:
        """Remove what a killed process left of its last line."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end != len(data):
            os.truncate(self.path, end)


def identity_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two results the same measurement: experiment, case, mode, plan and environment."""
    # As JSON has it, so that tuples and lists compare equal.
    return json.loads(json.dumps({name: record[name] for name in _IDENTITY}))


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a result file.

    Raises:
        UsageError: when it cannot be read.
        CorruptDataError: naming the first line that is not a record. An unfinished last line is ignored.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CorruptDataError(f"{path} is not a text file") from None
    return list(_parsed(path, lines))


def _parsed(path: Path, lines: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        try:
            record = json.loads(line)
        except ValueError:
            raise CorruptDataError(f"{path}, line {number}: not JSON") from None
        if not isinstance(record, dict) or record.get("schema") != SCHEMA or "kind" not in record:
            raise CorruptDataError(f"{path}, line {number}: not a result of `torchvk bench`")
        missing = [name for name in _NEEDED.get(record["kind"], ()) if name not in record]
        if missing:
            raise CorruptDataError(f"{path}, line {number}: {record['kind']} without {missing[0]}")
        yield record


def _free_name(directory: Path) -> Path:
    numbers = (n for n in range(1, 10_000))
    names = (directory / f"results-{n}.jsonl" for n in numbers)
    return next(name for name in names if not name.exists())


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
