"""The library modules that a kernel module imports, precompiled.

In: Slang source. Out: the modules it needs, and directories with their binary form.
Forbidden: compiling kernels; trusting a binary module whose cache entry does not vouch for it.

Slang parses and checks every imported module again in each compilation: 0.1 to 1 s for ours. In
their binary form (``.slang-module``) they cost a few milliseconds, so each is compiled once per
machine, compiler and text, and found by Slang through ``-I`` before its source is.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torchvk_compile import cache

_IMPORT = re.compile(r"^\s*(?:__exported\s+)?import\s+(\w+)\s*;", re.MULTILINE)
_CACHE_KIND = "slang-module"


class Precompiler(Protocol):
    """What `include_options` needs of a Slang compiler."""

    def precompile(self, path: Path, options: Sequence[str]) -> bytes: ...


def imported_modules(source: str, directory: Path) -> dict[str, str]:
    """Names and texts of all modules in `directory` that `source` needs, dependencies first."""
    modules: dict[str, str] = {}
    _collect(source, directory, modules, visiting=set())
    return modules


def _collect(source: str, directory: Path, modules: dict[str, str], visiting: set[str]) -> None:
    for name in _IMPORT.findall(source):
        path = directory / f"{name}.slang"
        # What is not in the library, or imports itself, Slang reports better than we could.
        if name in modules or name in visiting or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        visiting.add(name)
        _collect(text, directory, modules, visiting)
        modules[name] = text


def include_options(
    modules: dict[str, str], directory: Path, slang: Precompiler, compiler_identity: str
) -> list[str]:
    """``-I`` options under which Slang finds `modules` precompiled, and all others as source.

    Raises whatever `slang` raises when a module is wrong.
    """
    options: list[str] = []
    for name, text in modules.items():
        needed = imported_modules(text, directory)
        parts = [compiler_identity, name, text, *needed.values()]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        binary = cache.read(_CACHE_KIND, key)
        if binary is None:
            # Dependencies come first, so their binary forms are already on the path.
            binary = slang.precompile(directory / f"{name}.slang", [*options, "-I", str(directory)])
            cache.write(_CACHE_KIND, key, binary)
        options += ["-I", str(_materialise(name, key, binary))]
    return [*options, "-I", str(directory)]


def _materialise(name: str, key: str, binary: bytes) -> Path:
    """A directory that holds `binary` as ``<name>.slang-module``."""
    roots = (cache.directory() / "slang-include", _temporary_root())
    for root in roots:
        directory = root / key[:32]
        path = directory / f"{name}.slang-module"
        with contextlib.suppress(OSError):
            if path.read_bytes() == binary:
                return directory
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=directory)
            with os.fdopen(handle, "wb") as file:
                file.write(binary)
            os.replace(temporary, path)
            return directory
    raise OSError(f"torchvk could write the Slang module {name} to none of {roots}")


def _temporary_root() -> Path:
    return Path(_temporary_directory().name)


@functools.cache
def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """For machines without a writable cache; removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="torchvk-include-")
