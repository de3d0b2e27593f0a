"""One Slang module, compiled or remembered.

In: source text and entry point names. Out: the SPIR-V binary.
Forbidden: two ways to compile: everything that needs SPIR-V calls `compile_module`.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from torchvk_compile import cache, config
from torchvk_compile.errors import ShaderCompileError, UsageError
from torchvk_compile.log import logger
from torchvk_compile.shaders import spirv
from torchvk_compile.shaders.executable import SlangExecutable
from torchvk_compile.shaders.imports import imported_modules, include_options
from torchvk_compile.shaders.library import SlangFailure, SlangLibrary, SlangLibraryUnusable
from torchvk_compile.shaders.location import SlangCompiler, find_compiler, template_root
from torchvk_compile.shaders.spirv import FloatControls

_CACHE_KIND = "spirv"
_LATEST_KIND = "spirv-latest"
"""Entries that hold the key of the last binary made of a source, by whichever compiler."""

_OPTIONS = (
    *("-target", "spirv", "-profile", "spirv_1_5"),
    # The wheel has no spirv-opt, which every level above 0 asks for; drivers optimise anyway.
    "-O0",
    "-skip-spirv-validation",
    "-fvk-use-entrypoint-name",
    # No contraction of a * b + c behind torch's back; templates that want an FMA write fma().
    *("-fp-mode", "precise"),
    # Modules use subgroup operations, 64-bit integers, …: what the device offers is checked when
    # the plan is built, not against Slang's idea of the profile.
    "-ignore-capabilities",
    # Each kernel of a module declares its own argument block at binding 0 of set 0 on purpose.
    "-Wno-39001",
)


def compile_module(
    source: str,
    entry_points: Sequence[str],
    *,
    name: str = "graph",
    float_controls: FloatControls = FloatControls(),  # noqa: B008, it is frozen
) -> bytes:
    """Compile one Slang module to SPIR-V 1.5 for Vulkan 1.2.

    `source` marks each kernel with ``[shader("compute")]`` and may ``import`` the modules in
    ``codegen_templates/lib``. The result holds exactly the kernels named by `entry_points`, under
    their own names. It comes from the disk cache if the source, the imported modules, the options
    and the compiler are the same as before; where there is no compiler, the last one's result counts.

    `name` appears in diagnostics and names the files in ``config.dump_shaders``. `float_controls`
    is what the device's compiler is asked to keep.

    Raises ShaderCompileError with Slang's diagnostics; the source is saved for inspection.
    """
    name = re.sub(r"\W+", "_", name) or "graph"
    modules = imported_modules(source, _library_directory())
    source_key = _key(*modules, *modules.values(), repr(float_controls), source)
    try:
        compiler = find_compiler()
    except ShaderCompileError:
        # What was compiled earlier runs without a compiler.
        remembered = _compiled_earlier(source_key)
        if remembered is None:
            raise
        binary = remembered
    else:
        binary = _compiled(
            compiler, source, modules, float_controls, source_key, name, len(entry_points)
        )
    if config.dump_shaders is not None:
        _dump(config.dump_shaders, name, source, binary)
    present = spirv.entry_points(binary)
    if sorted(present) != sorted(entry_points):
        raise ShaderCompileError(
            f"Slang module {name} has the entry points {present}, expected {list(entry_points)}",
            source_path=_save_source(source, name),
        )
    return binary


def _compiled(
    compiler: SlangCompiler,
    source: str,
    modules: dict[str, str],
    float_controls: FloatControls,
    source_key: str,
    name: str,
    kernels: int,
) -> bytes:
    """The module as this compiler makes it, from the cache if it made it before."""
    key = _key(compiler.identity, source_key)
    binary = cache.read(_CACHE_KIND, key)
    if binary is None:
        start = time.perf_counter()
        binary = _compile(compiler, source, modules, name)
        binary = spirv.with_float_controls(binary, float_controls)
        milliseconds = 1e3 * (time.perf_counter() - start)
        logger("kernels").info("compiled %s: %d kernels, %.0f ms", name, kernels, milliseconds)
        logger("kernels").debug("source of %s:\n%s", name, source)
        cache.write(_CACHE_KIND, key, binary)
        cache.write(_LATEST_KIND, source_key, key.encode())
    return binary


def _compile(compiler: SlangCompiler, source: str, modules: dict[str, str], name: str) -> bytes:
    try:
        slang = load_compiler(compiler)
        includes = include_options(modules, _library_directory(), slang, compiler.identity)
        binary = slang.compile(source, [*_OPTIONS, *includes], name)
        return spirv.without_source_language(binary)
    except (SlangFailure, ValueError) as error:
        raise ShaderCompileError(
            f"Slang could not compile module {name}",
            diagnostics=str(error),
            source_path=_save_source(source, name),
        ) from None


@functools.cache
def load_compiler(compiler: SlangCompiler) -> SlangLibrary | SlangExecutable:
    """The compiler ready for use: its library if that can be loaded, else its executable.

    Raises ShaderCompileError if neither works.
    """
    if compiler.library is not None:
        try:
            return SlangLibrary(compiler.library)
        except SlangLibraryUnusable as error:
            if compiler.executable is None:
                raise ShaderCompileError(f"the Slang compiler cannot be used: {error}") from error
            logger("kernels").warning("using %s, because %s", compiler.executable, error)
    assert compiler.executable is not None
    return SlangExecutable(compiler.executable)


def _library_directory() -> Path:
    return template_root() / "lib"


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join((*_OPTIONS, *parts)).encode()).hexdigest()


def _compiled_earlier(source_key: str) -> bytes | None:
    """The binary that any compiler last made of a source."""
    key = cache.read(_LATEST_KIND, source_key)
    return None if key is None else cache.read(_CACHE_KIND, key.decode())


def _dump(directory: Path, name: str, source: str, binary: bytes) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.slang").write_text(source, encoding="utf-8")
        (directory / f"{name}.spv").write_bytes(binary)
    except OSError as error:
        raise UsageError(
            f"cannot write shaders to {directory} (config.dump_shaders, TORCHVK_DUMP_SHADERS): {error}"
        ) from None


def _save_source(source: str, name: str) -> Path | None:
    """Keep a refused source: beside the cache, else in the temporary directory, else nowhere."""
    file_name = f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:12]}.slang"
    for directory in (cache.directory() / "failed", Path(tempfile.gettempdir()) / "torchvk-failed"):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / file_name).write_text(source, encoding="utf-8")
        except OSError:
            continue
        return directory / file_name
    return None
