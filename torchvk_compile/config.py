"""Settings of TorchVK: ``torchvk_compile.config.<name>``, each also an environment variable.

In: assignments, ``patch(...)`` and ``TORCHVK_*`` variables. Out: validated, typed values.
Forbidden: importing other rooms, touching torch's configuration, reading files.

`SETTINGS` has each with its default and its meaning; docs/configuration.md is the same as a table.

An assignment wins over the environment; the environment is read when a setting is, so an invalid
variable is reported by the code that needs it and never breaks ``import torch``.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

cpu_fallback: Literal["error", "warn", "allow"]
device: str | None
cache_dir: Path | None
slangc: Path | None
dump_shaders: Path | None
validation: bool
winograd: bool
without: frozenset[str]
log: str

MECHANISMS = {
    "fusion": "operators share kernels",
    "replay": "a recorded command buffer is submitted again",
    "memory_planning": "intermediates whose lifetimes do not meet share memory",
    "vectors": "loop kernels load and store four consecutive elements at once",
    "hazard_barriers": "only steps that depend on an unfinished one wait",
    "gemm_templates": "matrix products have tiled kernels instead of one loop per element",
    "argument_table": "a recording takes new addresses and sizes from a table",
    "subgroups": "reductions combine through the subgroup, not shared memory alone",
}
"""What `without` can switch off, when a graph is compiled. Results stay right; eager operators keep everything."""

LEVELS = ("debug", "info", "warning", "error")
"""Levels of `log`."""

ARTIFACTS = {
    "kernels": "each Slang module that is compiled, and how long it took; +: its source",
    "plans": "each compiled graph: kernels, dispatches, memory; +: each time one runs",
    "fusion": "which operators each kernel computes, and their source lines",
    "tuning": "with mode max-autotune, what was measured and chosen; +: each candidate",
    "cache": "what the caches write and drop; +: each hit and miss",
    "runtime": "devices that are opened, and under which driver",
    "eager": "each eager operator that is compiled, with its dtypes and shapes",
}
"""What `log` can switch on one by one."""

_PREFIX = "TORCHVK_"


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as in ``config.<name>``.
        default: where neither the program nor the environment says anything.
        validate: returns the value in its type, or raises ValueError.
        values: what it takes, in words.
        meaning: what it does; a sentence of docs/configuration.md.
    """

    name: str
    default: object
    validate: Callable[[object], object]
    values: str
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return _PREFIX + self.name.upper()


def _choice(*allowed: str) -> Callable[[object], object]:
    def validate(value: object) -> object:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(f"expected one of {', '.join(allowed)}")

    return validate


def _flag(value: object) -> object:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("expected a boolean (1 or 0 in the environment)")


def _log(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("expected text")
    words = [word.strip().lower() for word in value.split(",") if word.strip()]
    known = (*LEVELS, *ARTIFACTS)
    for word in words:
        if word not in LEVELS and word.removeprefix("+") not in ARTIFACTS:
            nearest = difflib.get_close_matches(word.removeprefix("+"), known, n=1, cutoff=0.5)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ValueError(f"{word!r} is none of {', '.join(known)}{hint}")
    return ",".join(words) or "warning"


def _mechanisms(value: object) -> object:
    if value is None:
        return frozenset()
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected names of mechanisms, separated by commas")
    chosen = frozenset(name.strip().lower() for name in names if name.strip())
    for unknown in sorted(chosen - MECHANISMS.keys()):
        raise ValueError(f"{unknown!r} is none of {', '.join(MECHANISMS)}")
    return chosen


def _optional_path(value: object) -> object:
    if value is None or value == "":
        return None
    if isinstance(value, (str, os.PathLike)):
        return Path(value).expanduser()
    raise ValueError("expected a path or None")


def _optional_device(value: object) -> object:
    if value is None or value == "":
        return None
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value).strip()
    raise ValueError("expected a device index or a part of a device name")


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "cpu_fallback",
            "error",
            _choice("error", "warn", "allow"),
            "`error`, `warn` or `allow`",
            "an operator without a GPU kernel raises; runs on the CPU and warns once per operator; "
            "runs on the CPU and is only counted",
        ),
        Setting(
            "device",
            None,
            _optional_device,
            "a number or a part of a name",
            "restricts TorchVK to one device, which becomes `vk:0`; read when the first device is "
            "looked for",
        ),
        Setting(
            "cache_dir",
            None,
            _optional_path,
            "a directory",
            "where compiled shaders and pipelines are kept; by default the user's cache directory",
        ),
        Setting(
            "slangc",
            None,
            _optional_path,
            "a file or a directory",
            "the Slang compiler: the executable, the library, or a directory with either; by default "
            "that of the package slangtorch, then PATH, then VULKAN_SDK",
        ),
        Setting(
            "dump_shaders",
            None,
            _optional_path,
            "a directory",
            "keeps the Slang source and the SPIR-V of every graph there",
        ),
        Setting(
            "validation",
            False,
            _flag,
            "`1` or `0`",
            "switches the Khronos validation layer on; read when the first device is looked for",
        ),
        Setting(
            "winograd",
            True,
            _flag,
            "`1` or `0`",
            "with mode max-autotune, convolutions of 3 x 3 taps may be computed by Winograd's method "
            "([what it changes](max-autotune.md#winograds-method))",
        ),
        Setting(
            "without",
            frozenset(),
            _mechanisms,
            "names, separated by commas",
            "mechanisms to switch off, to measure what each is worth (see below)",
        ),
        Setting(
            "log",
            "warning",
            _log,
            "words, separated by commas",
            "a level (`debug`, `info`, `warning`, `error`) and artifacts (see below), with a `+` for "
            "every detail",
        ),
    )
}

_assigned: dict[str, object] = {}


def _validated(setting: Setting, value: object, origin: str) -> object:
    try:
        return setting.validate(value)
    except ValueError as error:
        raise ValueError(f"{origin}: {value!r} is not valid: {error}") from None


def _refuse_unknown(name: str) -> NoReturn:
    nearest = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(SETTINGS)}"
    raise AttributeError(f"torchvk_compile.config has no setting {name!r}; {hint}")


def get(name: str) -> Any:
    """Value of a setting: assigned, else from the environment, else the default.

    Raises AttributeError for an unknown name and ValueError for an invalid variable.
    """
    setting = SETTINGS.get(name)
    if setting is None:
        _refuse_unknown(name)
    if name in _assigned:
        return _assigned[name]
    text = os.environ.get(setting.variable)
    if text is None:
        return setting.default
    return _validated(setting, text, setting.variable)


def assign(name: str, value: object) -> None:
    """Set a setting for this process. Same errors as `get`, and ValueError for a bad value."""
    setting = SETTINGS.get(name)
    if setting is None:
        _refuse_unknown(name)
    _assigned[name] = _validated(setting, value, f"torchvk_compile.config.{name}")


@contextlib.contextmanager
def patch(settings: Mapping[str, object] | None = None, /, **changes: object) -> Iterator[None]:
    """Change settings inside a ``with`` block, or for a function that is decorated with it.

    ``with config.patch(cpu_fallback="warn"): ...`` and ``config.patch({"cpu_fallback": "warn"})``
    mean the same, as in torch's own configuration modules. All names and values are checked before the
    first one changes. Process-wide, not per thread.
    """
    checked = {}
    for name, value in {**(settings or {}), **changes}.items():
        setting = SETTINGS.get(name)
        if setting is None:
            _refuse_unknown(name)
        checked[name] = _validated(setting, value, f"torchvk_compile.config.{name}")
    before = {name: _assigned[name] for name in checked if name in _assigned}
    _assigned.update(checked)
    try:
        yield
    finally:
        for name in checked:
            _assigned.pop(name, None)
        _assigned.update(before)


def to_dict() -> dict[str, object]:
    """All settings with their present values."""
    return {name: get(name) for name in SETTINGS}


def warn_about_unknown_variables() -> None:
    """Warn about each ``TORCHVK_*`` variable that no setting reads (most likely misspelt)."""
    known = {setting.variable for setting in SETTINGS.values()}
    for variable in sorted(os.environ):
        if variable.startswith(_PREFIX) and variable not in known:
            nearest = difflib.get_close_matches(variable, known, n=1, cutoff=0.5)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            warnings.warn(f"torchvk does not know the variable {variable}{hint}", stacklevel=2)


class _ConfigModule(types.ModuleType):
    """Lets ``config.name`` and ``config.name = value`` go through `get` and `assign`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return get(name)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            assign(name, value)

    def __delattr__(self, name: str) -> None:
        if name not in SETTINGS:
            _refuse_unknown(name)
        _assigned.pop(name, None)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *SETTINGS})


sys.modules[__name__].__class__ = _ConfigModule
