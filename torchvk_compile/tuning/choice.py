"""The choice between measured configurations, and its memory on disk.

In: a default, alternatives in the order of their promise, a `Problem`. Out: one of them. Forbidden: replacing the
default by anything that was not faster beyond the spread of the measurements.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torchvk_compile import cache
from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.log import logger
from torchvk_compile.shaders import template_root
from torchvk_compile.tuning import trial
from torchvk_compile.tuning.problem import Problem

MOST_CANDIDATES = 8
"""Configurations that are compiled and measured for one problem, the default among them."""

_KIND = "tuning"
_wanted = contextvars.ContextVar("wanted", default=False)
_known: dict[str, str] = {}
"""Choices of this process, which needs no disk for them."""

Config = TypeVar("Config")


@contextlib.contextmanager
def measured_choices() -> Iterator[None]:
    """Compile inside with configurations that were measured."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def chosen(
    default: Config,
    alternatives: Callable[[], Sequence[Config]],
    problem: Callable[[], Problem],
) -> Config:
    """The default, or what was measured to be faster where measuring was asked for.

    Args:
        default: what the cost model chooses.
        alternatives: other configurations with the same results, the most promising first.
        problem: what they are configurations of.
    """
    forced = trial.candidate()
    if forced is not None:
        return forced
    if not _wanted.get():
        return default
    found = problem()
    if profile_of(found.device_index).null_hardware:
        return default
    others = [config for config in alternatives() if config != default]
    candidates = {str(config): config for config in [default, *others[: MOST_CANDIDATES - 1]]}
    if len(candidates) == 1:
        return default
    key = _key(found, candidates)
    name = _known.get(key) or _remembered(key)
    if name not in candidates:
        name = _measured(key, found, candidates)
    _known[key] = name
    return candidates[name]


def _measured(key: str, problem: Problem, candidates: dict[str, Config]) -> str:
    default = next(iter(candidates))
    begin = time.perf_counter()
    times = trial.measure(problem, list(candidates.values()))
    by_name = {name: times[config] for name, config in candidates.items() if config in times}
    name = fastest(by_name, default)
    seconds = time.perf_counter() - begin
    logger("tuning").info(
        "%s: %s, of %d candidates in %.1f s (%s)",
        *(problem, name, len(candidates), seconds),
        "; ".join(f"{other} {t}" for other, t in by_name.items()),
    )
    if by_name:
        record = {
            "problem": str(problem),
            "choice": name,
            "median_ns": {other: t.median for other, t in by_name.items()},
            "quartiles_ns": {other: t.quartiles for other, t in by_name.items()},
        }
        cache.write(_KIND, key, json.dumps(record, indent=1).encode())
    return name


def fastest(times: dict[str, trial.Times], default: str) -> str:
    """The candidate with the smallest median, if its upper quartile is below the default's lower one."""
    if not times:
        return default
    best = min((name for name in times if times[name].in_reach), key=lambda n: times[n].median)
    if default not in times:
        return best
    clearly = times[best].quartiles[1] < times[default].quartiles[0]
    return best if clearly else default


def _remembered(key: str) -> str | None:
    """A choice that an earlier process wrote; None where there is none, or none that can be read."""
    payload = cache.read(_KIND, key)
    if payload is None:
        return None
    try:
        return str(json.loads(payload)["choice"])
    except (ValueError, KeyError, TypeError):
        logger("cache").info("ignored a choice that cannot be read: %s", key)
        return None


def _key(problem: Problem, candidates: dict[str, Config]) -> str:
    profile = profile_of(problem.device_index)
    parts = (
        repr(problem),
        repr(list(candidates)),
        profile.device_uuid,
        profile.driver_uuid,
        profile.driver_name,
        profile.driver_info,
        _template_digest(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _template_digest() -> str:
    """Of all Slang sources: a kernel that changed is measured anew."""
    digest = hashlib.sha256()
    for pattern in ("**/*.j2", "**/*.slang"):
        for path in sorted(template_root().glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
