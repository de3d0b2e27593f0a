"""Files that outlive the process: compiled shaders and driver pipelines.

In: (kind, key, bytes). Out: the same bytes, or None when there is no trustworthy entry.
Forbidden: raising because of the disk; returning bytes whose checksum does not match.

An entry is ``<directory>/<kind>/<first two characters of key>/<key>``: a magic line, the SHA-256
of kind, key and payload, then the payload. Kind and key are part of the checksum, so a file that
was renamed or copied from elsewhere is foreign, not a hit. Writers create a temporary file in the
same directory and rename it, so readers and concurrent writers only ever see whole entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
import threading
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from torchvk_compile import config
from torchvk_compile.log import logger

_MAGIC = b"torchvk cache 1\n"
_HEADER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class CacheStatistics:
    """Counts since the process started. `corrupt` entries were dropped, `failures` not written."""

    hits: int = 0
    misses: int = 0
    writes: int = 0
    corrupt: int = 0
    failures: int = 0


_lock = threading.Lock()
_statistics = CacheStatistics()
_warned_directories: set[Path] = set()


def statistics() -> CacheStatistics:
    """A snapshot of the counts."""
    return _statistics


def location() -> Path:
    """The cache's root, which need not exist."""
    return config.cache_dir or _default_directory()


def directory() -> Path:
    """The cache's root, created if possible. It may be unwritable: the cache then does nothing."""
    root = location()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _warn_unwritable(root, error)
    return root


def read(kind: str, key: str) -> bytes | None:
    """The payload written for (kind, key), or None. A damaged or foreign entry is removed."""
    path = _entry_path(kind, key)
    try:
        data = path.read_bytes()
    except OSError:
        _count(misses=1)
        logger("cache").debug("miss: %s %s", kind, key)
        return None
    payload = data[_HEADER_BYTES:]
    if data[:_HEADER_BYTES] != _header(kind, key, payload):
        with contextlib.suppress(OSError):
            path.unlink()
        _count(corrupt=1, misses=1)
        logger("cache").info("dropped a damaged entry: %s", path)
        return None
    _count(hits=1)
    logger("cache").debug("hit: %s %s, %d bytes", kind, key, len(payload))
    return payload


def write(kind: str, key: str, payload: bytes) -> bool:
    """Store the payload atomically. False (and one warning per directory) if the disk refuses."""
    path = _entry_path(kind, key)
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(_header(kind, key, payload))
            file.write(payload)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _count(failures=1)
        # Windows refuses to replace a file that another process has open; that entry is as good.
        if not path.exists():
            _warn_unwritable(directory(), error)
        return False
    _count(writes=1)
    logger("cache").info("wrote %s %s, %d bytes", kind, key, len(payload))
    return True


def _default_directory() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "torchvk" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torchvk"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torchvk"


def _entry_path(kind: str, key: str) -> Path:
    for part in (kind, key):
        if not _NAME.fullmatch(part):
            raise ValueError(f"{part!r} cannot be part of a cache file name")
    return directory() / kind / key[:2] / key


def _header(kind: str, key: str, payload: bytes) -> bytes:
    checksum = hashlib.sha256(f"{kind}\0{key}\0".encode())
    checksum.update(payload)
    return _MAGIC + checksum.digest()


def _count(**changes: int) -> None:
    global _statistics
    with _lock:
        values = {name: getattr(_statistics, name) + n for name, n in changes.items()}
        _statistics = replace(_statistics, **values)


def _warn_unwritable(root: Path, error: OSError) -> None:
    with _lock:
        if root in _warned_directories:
            return
        _warned_directories.add(root)
    warnings.warn(
        f"torchvk cannot write its cache in {root} ({error.strerror or error}); going on without "
        "it, so every process compiles its shaders again. Set TORCHVK_CACHE_DIR to a writable "
        "directory.",
        RuntimeWarning,
        stacklevel=3,
    )
