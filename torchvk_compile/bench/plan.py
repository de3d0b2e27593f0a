"""The plan of the experiments: what is run, how often, and what counts as success.

In: ``benchmarks/plan.toml``. Out: a validated `Plan` with the SHA-256 of the file. Forbidden: defaults for anything the
plan leaves out; knowing how an experiment is run.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torchvk_compile.errors import CorruptDataError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

COMMITTED_SHA256 = "d2454b46d12d2161540ebcc5abb583ae27021b0e77ac63dcaa79133ab1d0bda8"
"""SHA-256 of the plan in the repository. Results of any other plan are reported as such."""

Mode = Literal["full", "quick"]
MODES: tuple[Mode, ...] = ("full", "quick")

_VERSION = 1
_TEXTS = ("title", "question", "workload", "metric", "failure")
_BOUNDS = ("at_least", "at_most", "at_least_target")
_NEEDED = ("rounds", "warm_up", "sample_seconds")
_KINDS = ("discrete", "integrated", "virtual", "cpu", "other")


@dataclass(frozen=True)
class Criterion:
    """One condition of acceptance: a measure and the bound it has to keep.

    Attributes:
        name: in words.
        measure: name of a function in `verdicts`.
        at_least, at_most: the bound; one of them is None.
        at_least_target: the bound is the experiment's ``target_accuracy``, from below.
        only: kinds of devices it applies to (`DeviceProfile.device_type`); empty means all.
    """

    name: str
    measure: str
    at_least: float | None = None
    at_most: float | None = None
    at_least_target: bool = False
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """One experiment: its texts, its criteria, and its settings in both modes."""

    key: str
    title: str
    question: str
    workload: str
    metric: str
    failure: str
    criteria: tuple[Criterion, ...]
    settings: Mapping[Mode, Mapping[str, Any]]


@dataclass(frozen=True)
class Plan:
    """All experiments, and the identity of the file they were read from."""

    question: str
    method: Mapping[str, Any]
    experiments: Mapping[str, Experiment]
    sha256: str

    @property
    def is_committed(self) -> bool:
        """Whether this is, byte for byte, the plan of the repository."""
        return self.sha256 == COMMITTED_SHA256


def plan_path() -> Path:
    """The plan this installation came with: the repository's file, or its copy inside the package."""
    package = Path(__file__).parents[1]
    candidates = (package.parent / "benchmarks" / "plan.toml", package / "bench" / "plan.toml")
    for path in candidates:
        if path.is_file():
            return path
    raise UsageError(
        f"the plan of the experiments is missing: {' and '.join(map(str, candidates))}"
    )


def load_plan(path: Path | None = None) -> Plan:
    """Read and check a plan.

    Args:
        path: another plan than the installed one.

    Raises:
        UsageError: when the file cannot be read.
        CorruptDataError: when it is not a plan, naming the place.
    """
    chosen = path or plan_path()
    try:
        data = chosen.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the plan {chosen}: {error.strerror}") from None
    try:
        return parse_plan(data)
    except CorruptDataError as error:
        raise CorruptDataError(f"{chosen}: {error}") from None


def parse_plan(data: bytes) -> Plan:
    """Read a plan from the bytes of its file. Raises CorruptDataError naming the place."""
    # A checkout on Windows may have rewritten the line ends; it is the same plan.
    data = data.replace(b"\r\n", b"\n")
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CorruptDataError(f"not a TOML file: {error}") from None
    if content.get("version") != _VERSION:
        raise CorruptDataError(f"version must be {_VERSION}, not {content.get('version')!r}")
    experiments = _table(content, "experiments", "")
    return Plan(
        question=_text(content, "question", ""),
        method=_table(content, "method", ""),
        experiments={key: _experiment(key, experiments) for key in experiments},
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _experiment(key: str, tables: Mapping[str, Any]) -> Experiment:
    table = _table(tables, key, "experiments.")
    place = f"experiments.{key}."
    settings = {mode: _settings(table, mode, place) for mode in MODES}
    criteria = table.get("criteria")
    if not isinstance(criteria, list) or not criteria:
        raise CorruptDataError(f"{place}criteria: an experiment needs at least one")
    texts = {name: _text(table, name, place) for name in _TEXTS}
    found = tuple(_criterion(c, f"{place}criteria[{i}]") for i, c in enumerate(criteria))
    return Experiment(key=key, criteria=found, settings=settings, **texts)


def _settings(table: Mapping[str, Any], mode: Mode, place: str) -> Mapping[str, Any]:
    settings = _table(table, mode, place)
    for name in _NEEDED:
        value = settings.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise CorruptDataError(f"{place}{mode}.{name}: expected a positive number")
    return settings


def _criterion(table: Any, place: str) -> Criterion:
    if not isinstance(table, dict):
        raise CorruptDataError(f"{place}: expected a table")
    bounds = [name for name in _BOUNDS if name in table]
    if len(bounds) != 1:
        raise CorruptDataError(f"{place}: needs exactly one of {', '.join(_BOUNDS)}")
    only = table.get("only", [])
    if not isinstance(only, list) or not set(only) <= set(_KINDS):
        raise CorruptDataError(f"{place}.only: expected some of {', '.join(_KINDS)}")
    values = {name: table[name] for name in bounds}
    return Criterion(
        name=_text(table, "name", f"{place}."),
        measure=_text(table, "measure", f"{place}."),
        only=tuple(only),
        **values,
    )


def _table(content: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict) or not value:
        raise CorruptDataError(f"{place}{name}: expected a table")
    return value


def _text(content: Mapping[str, Any], name: str, place: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value.strip():
        raise CorruptDataError(f"{place}{name}: expected a text")
    return value
