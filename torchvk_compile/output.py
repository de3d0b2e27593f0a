"""Files that a command writes for the user: checked before the work, whole or not at all.

In: a path, text or plain data. Out: a file; UsageError in time.
Forbidden: knowing what the data means.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from torchvk_compile.errors import UsageError


def check_writable_file(path: Path) -> None:
    """Raise UsageError now rather than lose a result later."""
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")
    _probe(path.parent, path)


def check_writable_directory(directory: Path) -> None:
    """Create the directory if need be. Raise UsageError if files cannot be written into it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {directory}: {error.strerror}") from None
    _probe(directory, directory)


def _probe(directory: Path, target: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None


def to_json(data: object) -> str:
    """The text of a JSON file."""
    return json.dumps(data, indent=2) + "\n"


def write_json(data: object, path: Path) -> None:
    """Write plain data as JSON, atomically."""
    write_text(to_json(data), path)


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # mkstemp files are private; a result should be as readable as any new file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
