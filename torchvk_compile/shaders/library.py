"""The Slang compiler in this process, through the flat C interface of its shared library.

In: one module's source and command-line style options. Out: SPIR-V, or the diagnostics.
Forbidden: the disk cache, config, entry into the library from two threads at once.

Compiling in process saves the 0.25 s that every start of ``slangc`` spends on Slang's built-in
modules: one global session loads them once and serves all requests.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path

_SLANG_SOURCE_LANGUAGE_SLANG = 1


class SlangFailure(Exception):
    """Slang refused the module; the argument is its diagnostics."""


class SlangLibraryUnusable(Exception):
    """The shared library cannot be loaded or lacks the interface used here."""


class SlangLibrary:
    """One loaded Slang library with its global session. Thread safe: one compilation at a time."""

    def __init__(self, path: Path) -> None:
        try:
            self._functions = _declare(ctypes.CDLL(str(path)))
        except (OSError, AttributeError) as error:
            raise SlangLibraryUnusable(f"{path}: {error}") from error
        self._lock = threading.Lock()
        self._session: int | None = None
        if hasattr(os, "register_at_fork"):
            # Another thread may hold the lock, and be inside the session, at the moment of a fork.
            os.register_at_fork(after_in_child=self._start_afresh)

    @property
    def version(self) -> str:
        """The release, as in ``2026.14.1``."""
        return str(self._functions.spGetBuildTagString().decode())

    def compile(self, source: str, options: Sequence[str], name: str) -> bytes:
        """Compile one module with all its entry points. Raises SlangFailure."""
        with self._lock:
            return self._compile(source, options, name)

    def _compile(self, source: str, options: Sequence[str], name: str) -> bytes:
        slang = self._functions
        if self._session is None:
            self._session = slang.spCreateSession(None)
            if not self._session:
                raise SlangFailure("Slang could not create a session")
        request = slang.spCreateCompileRequest(self._session)
        if not request:
            raise SlangFailure("Slang could not create a compile request")
        try:
            encoded = [option.encode() for option in options]
            arguments = (ctypes.c_char_p * len(encoded))(*encoded)
            if slang.spProcessCommandLineArguments(request, arguments, len(encoded)) < 0:
                raise SlangFailure(self._diagnostics(request))
            unit = slang.spAddTranslationUnit(request, _SLANG_SOURCE_LANGUAGE_SLANG, name.encode())
            file_name = f"{name}.slang".encode()
            slang.spAddTranslationUnitSourceString(request, unit, file_name, source.encode())
            if slang.spCompile(request) < 0:
                raise SlangFailure(self._diagnostics(request))
            size = ctypes.c_size_t()
            code = slang.spGetCompileRequestCode(request, ctypes.byref(size))
            if not code or not size.value:
                raise SlangFailure(self._diagnostics(request) or "Slang produced no code")
            return ctypes.string_at(code, size.value)
        finally:
            slang.spDestroyCompileRequest(request)

    def _diagnostics(self, request: int) -> str:
        return (self._functions.spGetDiagnosticOutput(request) or b"").decode(errors="replace")

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._session = None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Give each function used here its C signature. AttributeError if one is missing."""
    pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "spGetBuildTagString": (text, []),
        "spCreateSession": (pointer, [text]),
        "spCreateCompileRequest": (pointer, [pointer]),
        "spDestroyCompileRequest": (None, [pointer]),
        "spProcessCommandLineArguments": (integer, [pointer, ctypes.POINTER(text), integer]),
        "spAddTranslationUnit": (integer, [pointer, integer, text]),
        "spAddTranslationUnitSourceString": (None, [pointer, integer, text, text]),
        "spCompile": (integer, [pointer]),
        "spGetDiagnosticOutput": (text, [pointer]),
        "spGetCompileRequestCode": (pointer, [pointer, ctypes.POINTER(ctypes.c_size_t)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
