"""The Slang compiler in this process, through the flat C interface of its shared library.

In: one module's source and command-line style options. Out: SPIR-V, or the diagnostics.
Forbidden: the disk cache, config, entry into the library from two threads at once.

Compiling in process saves the 0.25 s that every start of ``slangc`` spends on Slang's built-in
modules: one global session loads them once and serves all requests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

_SLANG_SOURCE_LANGUAGE_SLANG = 1


class SlangFailure(Exception):
    """Slang refused the module; the argument is its diagnostics."""


class SlangLibraryUnusable(Exception):
    """The shared library cannot be loaded or lacks the interface used here."""


class SlangLibrary:
    """One loaded Slang library with its global session. Thread safe: one request at a time."""

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
        """Compile one module with all its entry points to SPIR-V. Raises SlangFailure."""
        slang = self._functions
        with self._request(options) as request:
            unit = slang.spAddTranslationUnit(request, _SLANG_SOURCE_LANGUAGE_SLANG, name.encode())
            file_name = f"{name}.slang".encode()
            slang.spAddTranslationUnitSourceString(request, unit, file_name, source.encode())
            self._execute(request)
            size = ctypes.c_size_t()
            code = slang.spGetCompileRequestCode(request, ctypes.byref(size))
            if not code or not size.value:
                raise SlangFailure(self._diagnostics(request) or "Slang produced no code")
            return ctypes.string_at(code, size.value)

    def precompile(self, path: Path, options: Sequence[str]) -> bytes:
        """Compile a module that others import to Slang's own binary form. Raises SlangFailure."""
        # The name after -o chooses the form; nothing is written to it.
        arguments = [str(path), *options, "-o", f"{path.stem}.slang-module"]
        with self._request(arguments) as request:
            self._execute(request)
            blob = ctypes.c_void_p()
            self._functions.spGetContainerCode(request, ctypes.byref(blob))
            if not blob:
                raise SlangFailure(self._diagnostics(request) or "Slang produced no module")
            return _take_blob(blob)

    @contextlib.contextmanager
    def _request(self, arguments: Sequence[str]) -> Iterator[int]:
        """A compile request with these arguments; the caller holds the library until it ends."""
        slang = self._functions
        with self._lock:
            if self._session is None:
                self._session = slang.spCreateSession(None)
            request = slang.spCreateCompileRequest(self._session) if self._session else None
            if not request:
                raise SlangFailure("Slang could not create a session")
            try:
                encoded = [argument.encode() for argument in arguments]
                pointers = (ctypes.c_char_p * len(encoded))(*encoded)
                if slang.spProcessCommandLineArguments(request, pointers, len(encoded)) < 0:
                    raise SlangFailure(self._diagnostics(request))
                yield request
            finally:
                slang.spDestroyCompileRequest(request)

    def _execute(self, request: int) -> None:
        if self._functions.spCompile(request) < 0:
            raise SlangFailure(self._diagnostics(request))

    def _diagnostics(self, request: int) -> str:
        return (self._functions.spGetDiagnosticOutput(request) or b"").decode(errors="replace")

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._session = None


def _take_blob(blob: ctypes.c_void_p) -> bytes:
    """Copy an ISlangBlob and release it.

    Its virtual table is COM's queryInterface, addRef, release, then getBufferPointer and
    getBufferSize.
    """
    pointer = ctypes.c_void_p
    table = ctypes.cast(ctypes.cast(blob, ctypes.POINTER(pointer))[0], ctypes.POINTER(pointer))
    release = ctypes.CFUNCTYPE(ctypes.c_uint32, pointer)(table[2])
    get_pointer = ctypes.CFUNCTYPE(pointer, pointer)(table[3])
    get_size = ctypes.CFUNCTYPE(ctypes.c_size_t, pointer)(table[4])
    try:
        return ctypes.string_at(get_pointer(blob), get_size(blob))
    finally:
        release(blob)


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
        "spGetContainerCode": (integer, [pointer, ctypes.POINTER(pointer)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
