"""The part of the conformance suite that `make test` runs: a fixed twentieth, and what ever failed.

In: `failed_before.txt`, `open_faults.txt`. Out: one test a case; those with a fault that is known and not
mended yet are expected failures, with the reason. Forbidden: choosing cases by whether they pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from .cases import Case, Selection, entries, listed, select
from .command import FAILED_BEFORE
from .execution import Limits
from .pool import Worker
from .records import Verdict

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


@pytest.fixture(scope="session")
def worker(private_caches: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process for the cases of this one, which a crash does not end.

    Fails when the Vulkan validation layer, where it is on, spoke in that process.
    """
    log = tmp_path_factory.mktemp("conformance") / "worker.log"
    worker = Worker(_LIMITS, log, {})
    yield worker
    worker.stop()
    assert "torchvk validation" not in log.read_text(errors="replace")


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.key)
def test_case(case: Case, worker: Worker) -> None:
    if case.name not in entries(case.database):
        pytest.skip(f"torch {torch.__version__} has no entry {case.name}")
    result = worker.run(case, _TIME_LIMIT_S)
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
