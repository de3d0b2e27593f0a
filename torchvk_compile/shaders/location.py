"""Where the Slang compiler and the Slang templates are on this machine.

In: ``config.slangc``, the installed packages, PATH, VULKAN_SDK. Out: paths.
Forbidden: loading or running what was found.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from torchvk_compile import config
from torchvk_compile.errors import ShaderCompileError

_EXECUTABLE = "slangc.exe" if sys.platform == "win32" else "slangc"
_LIBRARY_PATTERNS = {
    "win32": ("slang-compiler.dll", "slang.dll"),
    "darwin": ("libslang-compiler*.dylib", "libslang*.dylib"),
}.get(sys.platform, ("libslang-compiler.so*", "libslang.so*"))


@dataclass(frozen=True)
class SlangCompiler:
    """One Slang compiler: a shared library, an executable, or both (then they are one release).

    `origin` says how it was found: "TORCHVK_SLANGC", "wheel", "PATH" or "VULKAN_SDK".
    """

    library: Path | None
    executable: Path | None
    origin: str

    @property
    def identity(self) -> str:
        """Changes whenever the compiler is replaced. Cheap: nothing is loaded or started."""
        path = self.library or self.executable
        assert path is not None
        status = path.stat()
        return f"{path.name}:{status.st_size}:{status.st_mtime_ns}"


def template_root() -> Path:
    """The directory ``codegen_templates``: inside an installed package, beside a source tree's."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "codegen_templates"
    return installed if installed.is_dir() else package.parent / "codegen_templates"


def find_compiler() -> SlangCompiler:
    """The Slang compiler to use: TORCHVK_SLANGC, the slangtorch wheel, PATH, the Vulkan SDK.

    Raises ShaderCompileError if there is none, or if TORCHVK_SLANGC names something unusable.
    """
    chosen = config.slangc
    if chosen is not None:
        return _chosen_compiler(chosen)
    for origin, directory in _candidate_directories():
        compiler = _compiler_in(directory, origin)
        if compiler is not None:
            return compiler
    raise ShaderCompileError(
        "torchvk found no Slang compiler. Install the one it is tested with, `pip install "
        "slangtorch`, or point TORCHVK_SLANGC to a slangc executable or libslang-compiler library."
    )


def _chosen_compiler(path: Path) -> SlangCompiler:
    origin = "TORCHVK_SLANGC"
    if path.is_dir():
        compiler = _compiler_in(path, origin)
        if compiler is not None:
            return compiler
    elif path.is_file():
        if any(path.match(pattern) for pattern in _LIBRARY_PATTERNS):
            return SlangCompiler(path, None, origin)
        if os.access(path, os.X_OK):
            return SlangCompiler(None, path, origin)
    raise ShaderCompileError(
        f"TORCHVK_SLANGC={path} is neither a slangc executable, nor a Slang compiler library, nor "
        "a directory with one. Correct it, or unset it to use the compiler of the slangtorch wheel."
    )


def _candidate_directories() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    wheel = importlib.util.find_spec("slangtorch")
    if wheel is not None:
        for location in wheel.submodule_search_locations or ():
            candidates.append(("wheel", Path(location) / "bin"))
    on_path = shutil.which(_EXECUTABLE)
    if on_path is not None:
        candidates.append(("PATH", Path(on_path).resolve().parent))
    sdk = os.environ.get("VULKAN_SDK")
    if sdk:
        candidates += [("VULKAN_SDK", Path(sdk) / name) for name in ("bin", "Bin")]
    return candidates


def _compiler_in(directory: Path, origin: str) -> SlangCompiler | None:
    executable = directory / _EXECUTABLE
    library = next(
        (
            path
            for pattern in _LIBRARY_PATTERNS
            # Unix SDKs keep the library beside the executable's directory.
            for place in (directory, directory.parent / "lib")
            for path in sorted(place.glob(pattern))
        ),
        None,
    )
    runnable = executable.is_file() and os.access(executable, os.X_OK)
    if library is None and not runnable:
        return None
    return SlangCompiler(library, executable if runnable else None, origin)
