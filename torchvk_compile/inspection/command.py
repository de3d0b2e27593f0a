"""The course of ``torchvk inspect``: check, load, inspect, compile for the target, write.

In: `InspectOptions`. Out: tables on stdout, files, the exit status.
Forbidden: starting anything before every option is known to be good; leaving half a file.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import torchvk_compile
from torchvk_compile import output, torch_compat
from torchvk_compile.device import physical
from torchvk_compile.errors import TorchVKError, UsageError
from torchvk_compile.inspection.session import inspect
from torchvk_compile.inspection.target import find_target, reports_for

_NARROWEST, _WIDEST = 100, 180


@dataclasses.dataclass(frozen=True)
class InspectOptions:
    """The command line of ``torchvk inspect``.

    Attributes:
        subject: ``SCRIPT_OR_MODULE:CALLABLE``.
        json, html: files to write, or None.
        target: a card to compile for besides the device, or None.
        runs: calls to measure.
        quiet: print nothing.
    """

    subject: str
    json: Path | None = None
    html: Path | None = None
    target: str | None = None
    runs: int = 5
    quiet: bool = False


def run(options: InspectOptions) -> int:
    """Inspect and report; returns 0.

    Raises:
        UsageError: an option or the subject cannot be used.
        TorchVKError: the model cannot be compiled, there is no device, or no driver for the target.
    """
    for path in (options.json, options.html):
        if path is not None:
            output.check_writable_file(path)
    if options.target is not None:
        find_target(options.target)
    build = _load(options.subject)
    physical.profile(0)
    inspection = _inspect(options, build)
    if options.target is not None:
        arguments = [options.subject, "--runs", "1"]
        reports = reports_for(options.target, arguments)
        inspection = dataclasses.replace(inspection, reports=(*inspection.reports, *reports))
    if options.json is not None:
        inspection.write_json(options.json)
    if options.html is not None:
        inspection.write_html(options.html)
    if not options.quiet:
        columns = shutil.get_terminal_size((120, 24)).columns
        sys.stdout.write(inspection.text(min(max(columns, _NARROWEST), _WIDEST)))
    return 0


def _inspect(options: InspectOptions, build: Callable[[], Any]) -> Any:
    name = options.subject
    try:
        made = build()
    except Exception as error:
        raise _failure(f"{name} raised", error) from error
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UsageError(f"{name} must return (compiled model, its inputs), not {_kind(made)}")
    compiled, inputs = made
    if not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    try:
        return inspect(compiled, *inputs, runs=options.runs, subject=name)
    except TorchVKError:
        raise
    except Exception as error:
        raise _failure(f"calling what {name} returned raised", error) from error


def _failure(what: str, error: Exception) -> TorchVKError:
    if isinstance(error, TorchVKError):
        return error
    message = ": ".join([type(error).__name__, *filter(None, [_essence(str(error))])])
    place = _place(error)
    return TorchVKError(f"{what} {message} ({place.filename}:{place.lineno})")


def _essence(message: str) -> str:
    """A message's first paragraph on one line, without the hints that Dynamo adds to its own."""
    paragraph = message.strip().partition("\n\n")[0]
    lines = (line.strip() for line in paragraph.splitlines())
    return " ".join(line for line in lines if not line.startswith("Hint:"))


def _place(error: Exception) -> traceback.FrameSummary:
    """The line of the user's program: the last that is of neither torch nor this package."""
    frames = [*traceback.extract_tb(error.__traceback__), *torch_compat.user_frames(error)]
    packages = [str(Path(module.__file__ or "").parent) for module in (torch, torchvk_compile)]
    own = [frame for frame in frames if not frame.filename.startswith(tuple(packages))]
    return (own or frames)[-1]


def _load(subject: str) -> Callable[[], Any]:
    """The function that ``SCRIPT_OR_MODULE:CALLABLE`` names."""
    where, separator, name = subject.rpartition(":")
    if not separator or not where or not name:
        raise UsageError(
            f"{subject!r} is not of the form SCRIPT_OR_MODULE:CALLABLE, such as model.py:build"
        )
    module = _load_script(Path(where)) if where.endswith(".py") else _load_module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, [n for n in dir(found) if n[0] != "_"], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{where} has no {name}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{subject} is {_kind(found)}, which cannot be called")
    return found


def _load_script(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As Python does for a script; classes of the module find it by its name.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failure(f"{path} raised", error) from error
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {error.name} (a script ends in .py)") from None
        raise _failure(f"importing {name} raised", error) from error
    except Exception as error:
        raise _failure(f"importing {name} raised", error) from error


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return f"an object of type {kind}"
