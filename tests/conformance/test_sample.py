"""The part of the conformance suite that `make test` runs: a fixed twentieth, and what ever failed.

In: `failed_before.txt`, `open_faults.txt`. Out: one test a case; those with a fault that is known and not
mended yet are expected failures, with the reason. Forbidden: choosing cases by whether they pass.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cases import Case, Selection, listed, select
from .command import FAILED_BEFORE
from .execution import Limits
from .pool import run_all
from .records import Result, Verdict

_SAMPLE = Selection(fraction=0.05, seed=20)
_LIMITS = Limits(forward=1, backward=1)
_TIME_LIMIT_S = 120.0
_OPEN_FAULTS = Path(__file__).with_name("open_faults.txt")


def _open_faults() -> dict[str, str]:
    """Reason by case key, from lines ``key  reason``."""
    lines = _OPEN_FAULTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {fields[0]: fields[1] for fields in pairs}


def _cases() -> list[Case]:
    return list(dict.fromkeys([*listed(FAILED_BEFORE), *select(_SAMPLE)]))


class _Runs:
    """Results of cases that run in the background, in two processes."""

    def __init__(self, cases: list[Case], logs: Path) -> None:
        self._results: dict[Case, Result] = {}
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(cases, logs), daemon=True)
        self._thread.start()

    def of(self, case: Case) -> Result:
        with self._changed:
            self._changed.wait_for(lambda: case in self._results or self._error is not None)
            if case not in self._results:
                raise RuntimeError("the conformance processes stopped") from self._error
            return self._results[case]

    def _run(self, cases: list[Case], logs: Path) -> None:
        try:
            for result in run_all(
                cases,
                jobs=min(2, os.cpu_count() or 1),
                limits=_LIMITS,
                limit_s=_TIME_LIMIT_S,
                log_directory=logs,
                environment={},
            ):
                with self._changed:
                    self._results[result.case] = result
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()


@pytest.fixture(scope="session")
def runs(
    request: pytest.FixtureRequest, private_caches: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Runs]:
    chosen: list[Case] = [
        item.callspec.params["case"]  # type: ignore[misc]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_case
    ]
    yield _Runs(chosen, tmp_path_factory.mktemp("conformance"))


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.key)
def test_case(case: Case, runs: _Runs) -> None:
    result = runs.of(case)
    if result.worst in (Verdict.WRONG, Verdict.CRASH):
        failures = [
            f"{name} {direction.verdict.value}, {direction.counts}: {direction.detail}"
            for name, direction in result.directions()
            if direction.verdict is not Verdict.PASS
        ]
        if case.key in (known := _open_faults()):
            pytest.xfail(known[case.key])
        pytest.fail("\n".join(failures), pytrace=False)
    if result.worst is Verdict.REFUSED:
        pytest.skip(next(d.detail for _, d in result.directions() if d.detail))
