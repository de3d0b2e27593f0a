"""Versions of everything but the driver that results and measurements depend on.

In: the installed packages. Out: plain text by name.
Forbidden: opening a device; failing because something is not installed.
"""

from __future__ import annotations

import importlib.metadata
import platform

import torch


def versions() -> dict[str, str]:
    """Versions of Python, torch, torchvk-compile, the Slang compiler and the operating system."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvk-compile": _package("torchvk-compile"),
        "slang": slang_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def slang_version() -> str:
    """The release of the Slang compiler in use, or why there is none."""
    from torchvk_compile.errors import ShaderCompileError
    from torchvk_compile.shaders import find_compiler, load_compiler

    try:
        return load_compiler(find_compiler()).version
    except ShaderCompileError as error:
        return f"none: {error}"


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
