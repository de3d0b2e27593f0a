"""The software around the device: torch, the Slang compiler, the caches on disk.

In: installed packages, settings. Out: plain records.
Forbidden: compiling anything; creating or deleting cache entries.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchvk_compile import cache, torch_compat
from torchvk_compile.errors import ShaderCompileError
from torchvk_compile.shaders import find_compiler, load_compiler
from torchvk_compile.versions import versions

_ORIGINS = {
    "wheel": "the slangtorch package",
    "PATH": "found on PATH",
    "VULKAN_SDK": "the Vulkan SDK",
    "TORCHVK_SLANGC": "set by TORCHVK_SLANGC",
}


@dataclass(frozen=True)
class SlangStatus:
    """The Slang compiler; `error` is empty if it can be used."""

    version: str
    path: str
    origin: str
    error: str


@dataclass(frozen=True)
class CacheStatus:
    """One cache directory; `size` in bytes, `files` counts them."""

    name: str
    path: str
    files: int
    size: int
    writable: bool


@dataclass(frozen=True)
class Software:
    """Versions and directories; `torch_error` says why this torch is refused, or is empty."""

    versions: dict[str, str]
    torch_range: str
    torch_error: str
    slang: SlangStatus
    caches: tuple[CacheStatus, ...]


def look() -> Software:
    """Everything, without changing anything."""
    try:
        torch_compat.check_torch_version()
        torch_error = ""
    except ImportError as error:
        torch_error = str(error)
    return Software(
        versions=versions(),
        torch_range=f">= {'.'.join(map(str, torch_compat.OLDEST_SUPPORTED))}",
        torch_error=torch_error,
        slang=_slang(),
        caches=(
            _cache("shaders and pipelines", cache.location()),
            _cache("Inductor", torch_compat.inductor_cache_directory()),
        ),
    )


def _slang() -> SlangStatus:
    path = origin = ""
    try:
        compiler = find_compiler()
        path, origin = str(compiler.library or compiler.executable), _ORIGINS[compiler.origin]
        return SlangStatus(load_compiler(compiler).version, path, origin, "")
    except ShaderCompileError as error:
        return SlangStatus("", path, origin, str(error))


def _cache(name: str, path: Path) -> CacheStatus:
    files = size = 0
    for directory, _, names in os.walk(path):
        for file in names:
            try:
                size += os.stat(os.path.join(directory, file)).st_size
            except OSError:  # removed meanwhile
                continue
            files += 1
    return CacheStatus(name, str(path), files, size, _writable(path))


def _writable(path: Path) -> bool:
    """Whether files can be created in `path`, or, before it exists, where it would be made."""
    existing = next((place for place in (path, *path.parents) if place.exists()), path)
    try:
        with tempfile.TemporaryFile(dir=existing):
            return True
    except OSError:
        return False
