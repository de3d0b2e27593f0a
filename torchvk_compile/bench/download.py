"""Fetching MNIST and CIFAR-10 from where their authors or PyTorch keep them.

In: a directory. Out: the original files in it. Forbidden: keeping a file whose checksum is wrong; being called
without the user having asked (``--download``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchvk_compile.errors import CorruptDataError, UsageError

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Source:
    """A file on the network with the MD5 its publishers give; `archive` files are unpacked."""

    url: str
    md5: str
    archive: bool = False

    @property
    def name(self) -> str:
        """File name."""
        return self.url.rsplit("/", 1)[1]


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SOURCES = (
    Source(f"{_MNIST}train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    Source(f"{_MNIST}train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    Source(f"{_MNIST}t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    Source(f"{_MNIST}t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    Source(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        archive=True,
    ),
)


def download(directory: Path, say: Callable[[str], None]) -> None:
    """Put MNIST and CIFAR-10 into `directory`; what is there and right already is left.

    Raises:
        UsageError: when a server does not answer or the directory cannot be written.
        CorruptDataError: when a file arrives with another checksum.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {directory}: {error.strerror}") from None
    for source in SOURCES:
        path = directory / source.name
        if not path.exists() or _md5(path) != source.md5:
            say(f"Downloading {source.url}")
            _fetch(source, path)
        if source.archive:
            _unpack(path, directory)


def _fetch(source: Source, path: Path) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            urllib.request.urlopen(source.url, timeout=_TIMEOUT_SECONDS) as answer,
        ):
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
        if _md5(Path(temporary)) != source.md5:
            raise CorruptDataError(f"{source.url} arrived damaged: its MD5 is not {source.md5}")
        os.replace(temporary, path)
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(
            f"cannot download {source.url}: {reason}. Put the original files into a directory "
            "yourself and give it with --data DIR"
        ) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _unpack(path: Path, directory: Path) -> None:
    try:
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                # Flat files in one directory; anything else has no place in this archive.
                parts = Path(member.name).parts
                if member.isfile() and len(parts) == 2 and ".." not in parts:
                    target = directory / parts[0] / parts[1]
                    target.parent.mkdir(exist_ok=True)
                    content = archive.extractfile(member)
                    assert content is not None
                    target.write_bytes(content.read())
    except (tarfile.TarError, EOFError) as error:
        raise CorruptDataError(f"{path} is a damaged archive: {error}") from None


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
