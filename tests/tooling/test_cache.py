"""The disk cache: whole entries or none, whatever happens to the files."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchvk_compile import cache, config

KEY = "ab" * 32
PAYLOAD = bytes(range(256)) * 8


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with config.patch(cache_dir=tmp_path):
        yield tmp_path


def entry(directory: Path, kind: str = "spirv", key: str = KEY) -> Path:
    return directory / kind / key[:2] / key


def test_returns_what_was_written(directory: Path) -> None:
    assert cache.read("spirv", KEY) is None
    assert cache.write("spirv", KEY, PAYLOAD)
    assert cache.read("spirv", KEY) == PAYLOAD


def test_empty_payload_is_an_entry(directory: Path) -> None:
    cache.write("spirv", KEY, b"")
    assert cache.read("spirv", KEY) == b""


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="emptied"),
        pytest.param(lambda data: data[:10], id="truncated in the header"),
        pytest.param(lambda data: data[:-1], id="truncated by a byte"),
        pytest.param(lambda data: data + b"\0", id="longer by a byte"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="one bit flipped"),
        pytest.param(lambda data: data[48:], id="payload without header"),
        pytest.param(lambda data: b"#!/bin/sh\n" * 100, id="something else"),
    ],
)
def test_damaged_entry_is_dropped_counted_and_rebuilt(directory: Path, damage) -> None:
    cache.write("spirv", KEY, PAYLOAD)
    path = entry(directory)
    path.write_bytes(damage(path.read_bytes()))
    before = cache.statistics()
    assert cache.read("spirv", KEY) is None
    assert cache.statistics().corrupt == before.corrupt + 1
    assert not path.exists()
    assert cache.write("spirv", KEY, PAYLOAD)
    assert cache.read("spirv", KEY) == PAYLOAD


@pytest.mark.parametrize(("kind", "key"), [("spirv", "cd" * 32), ("pipeline", KEY)])
def test_entry_under_a_foreign_name_is_not_trusted(directory: Path, kind: str, key: str) -> None:
    cache.write("spirv", KEY, PAYLOAD)
    target = entry(directory, kind, key)
    target.parent.mkdir(parents=True)
    entry(directory).rename(target)
    assert cache.read(kind, key) is None


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\\b", ".hidden", "a" * 200])
def test_names_cannot_leave_the_directory(directory: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cache file name"):
        cache.read("spirv", name)
    with pytest.raises(ValueError, match="cache file name"):
        cache.write(name, KEY, PAYLOAD)


def test_unwritable_directory_warns_once_and_works_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    with config.patch(cache_dir=blocked / "cache"):
        with pytest.warns(RuntimeWarning, match="TORCHVK_CACHE_DIR"):
            assert not cache.write("spirv", KEY, PAYLOAD)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not cache.write("spirv", KEY, PAYLOAD)
            assert cache.read("spirv", KEY) is None


def test_failed_write_leaves_nothing_behind(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert not cache.write("spirv", KEY, PAYLOAD)
    assert [path for path in directory.rglob("*") if path.is_file()] == []


_WRITER = """
import sys
from torchvk_compile import cache
key, payload = sys.argv[1], bytes([int(sys.argv[2])]) * 100_000
for _ in range(100):
    cache.write("spirv", key, payload)
    found = cache.read("spirv", key)
    assert found is not None and len(found) == 100_000 and len(set(found)) == 1
assert cache.statistics().corrupt == 0
"""


def test_concurrent_writers_never_show_a_torn_entry(directory: Path) -> None:
    environment = {**os.environ, "TORCHVK_CACHE_DIR": str(directory)}
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, KEY, str(seed)], env=environment)
        for seed in range(2)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert list(entry(directory).parent.iterdir()) == [entry(directory)]


def test_default_directory_follows_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHVK_CACHE_DIR")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == tmp_path / "xdg" / "torchvk"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.directory() == tmp_path / "local" / "torchvk" / "Cache"
