"""Inductor's cache of generated modules, repaired where files in it are damaged.

In: a compilation that may start from the cache. Out: its result, after dropping damaged files if it
needs that; or CorruptCacheError, or UnwritableCacheError.
Forbidden: touching files whose content is what their name promises; looking at the cache at all
unless a compilation fails in it.

Inductor names a module after the hash of its source and believes a file that has the name. One that was
truncated (a full disk, a crash) would fail every later process.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from torchvk_compile import torch_compat
from torchvk_compile.errors import (
    CorruptCacheError,
    ShaderCompileError,
    TorchVKError,
    UnwritableCacheError,
)
from torchvk_compile.log import logger

_Result = TypeVar("_Result")

_LOADER = "torch._inductor.runtime.compile_tasks"
"""Modules that Inductor loads from its cache have this name as a prefix."""

_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def with_repair(compilation: Callable[[], _Result]) -> _Result:
    """The compilation's result. If it fails in a cached module, damaged ones go and it runs once more.

    Raises:
        CorruptCacheError: it fails in a cached module that is not damaged, or again after the repair.
        UnwritableCacheError: the disk is full, or nothing may be written to it.
        anything else the compilation raises.
    """
    try:
        return compilation()
    except Exception as error:
        if (refused := _refused_write(error)) is not None:
            raise _unwritable(refused) from error
        # Slang source that does not compile may be a fault of ours, or a module's text that was damaged.
        certain = _is_about_the_cache(error)
        if not certain and not isinstance(error, ShaderCompileError):
            raise
        dropped = drop_damaged_modules()
        if not dropped:
            if not certain:
                raise
            raise _corrupt(error) from error
        logger("cache").warning(
            "dropped %d damaged files from %s; compiling again",
            len(dropped),
            torch_compat.inductor_cache_directory(),
        )
    try:
        return compilation()
    except Exception as error:
        if not _is_about_the_cache(error):
            raise
        raise _corrupt(error) from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, Inductor's wrapping looked into."""
    inner: BaseException | None = error
    seen: set[int] = set()
    while inner is not None and id(inner) not in seen:
        yield inner
        seen.add(id(inner))
        inner = getattr(inner, "inner_exception", None) or inner.__cause__ or inner.__context__


def drop_damaged_modules() -> list[Path]:
    """Delete generated modules whose content does not match their name. Returns what was deleted."""
    dropped = []
    for path in torch_compat.inductor_cache_directory().glob("??/c*.py"):
        try:
            intact = torch_compat.inductor_module_name(path.read_bytes()) == path.stem
        except OSError:
            continue
        if not intact:
            with contextlib.suppress(OSError):
                path.unlink()
                dropped.append(path)
    return dropped


def _is_about_the_cache(error: Exception) -> bool:
    if isinstance(error, TorchVKError):
        return False
    text = str(error)
    return _LOADER in text or str(torch_compat.inductor_cache_directory()) in text


def _refused_write(error: Exception) -> OSError | None:
    """What the system said when it would not take a file; None if that is not why a compilation failed."""
    for cause in causes(error):
        if isinstance(cause, TorchVKError):
            return None
        if isinstance(cause, OSError) and cause.errno in _CANNOT_WRITE:
            return cause
    return None


def _unwritable(error: OSError) -> UnwritableCacheError:
    directory = torch_compat.inductor_cache_directory()
    return UnwritableCacheError(
        f"a compiled graph cannot be written into Inductor's cache ({os.strerror(error.errno or 0)}), from where it is "
        f"loaded. Make room in {directory}, or set TORCHINDUCTOR_CACHE_DIR to a directory that can be written"
    )


def _corrupt(error: Exception) -> CorruptCacheError:
    directory = torch_compat.inductor_cache_directory()
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return CorruptCacheError(
        f"a compiled graph in Inductor's cache cannot be loaded ({first_line}). Delete the directory "
        f"{directory}, or set TORCHINDUCTOR_CACHE_DIR to another one; graphs are then compiled anew"
    )
