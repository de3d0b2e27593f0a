"""Processes that start from a cache somebody damaged, and without the compiler that filled it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchvk_compile import cache_repair, torch_compat
from torchvk_compile.errors import CorruptCacheError, UnwritableCacheError

PROGRAM = """
import torch
f = torch.compile(lambda x: (x * 2).sum(1) + 1, backend="torchvk")
x = torch.ones(4, 8, device="vk", requires_grad=True)
f(x).sum().backward()
print(x.grad.sum().item(), x.detach().sinh().sum().item())
"""
RESULT = "64.0 37.60643768310547\n"


class Machine:
    """Two cache directories and processes that use them."""

    def __init__(self, root: Path) -> None:
        self.inductor, self.torchvk = root / "inductor", root / "torchvk"

    def run(self, program: str = PROGRAM, **variables: str) -> subprocess.CompletedProcess[str]:
        directories = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.inductor),
            "TORCHVK_CACHE_DIR": str(self.torchvk),
        }
        environment = {**os.environ, **directories, **variables}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def machine(vk: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    assert machine.run().stdout == RESULT
    return machine


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def misspelt(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"void ", b"vxid "))


@pytest.mark.parametrize(
    "damage",
    [
        halved,
        pytest.param(emptied, marks=pytest.mark.long),
        pytest.param(misspelt, marks=pytest.mark.long),
    ],
)
def test_damaged_modules_are_dropped_and_compiled_again(
    damage: Callable[[Path], None], machine: Machine
) -> None:
    modules = list(machine.inductor.glob("??/c*.py"))
    assert modules
    for path in modules:
        damage(path)
    done = machine.run()
    assert done.stdout == RESULT, done.stderr
    assert f"damaged files from {machine.inductor}" in done.stderr
    assert machine.run().stderr == ""


@pytest.mark.long
def test_everything_damaged_at_once(machine: Machine) -> None:
    for root in (machine.inductor, machine.torchvk):
        for path in root.rglob("*"):
            if path.is_file():
                emptied(path)
    assert machine.run().stdout == RESULT


def test_no_compiler_is_needed_for_what_is_in_the_cache(machine: Machine) -> None:
    machine.run()
    done = machine.run(TORCHVK_SLANGC="/nonexistent/slangc")
    assert done.stdout == RESULT, done.stderr
    other = PROGRAM.replace("* 2", "* 3")
    done = machine.run(other, TORCHVK_SLANGC="/nonexistent/slangc")
    assert done.returncode != 0
    assert "TORCHVK_SLANGC=/nonexistent/slangc is neither" in done.stderr


def test_names_are_those_that_inductor_gives(machine: Machine) -> None:
    machine.run()
    for path in machine.inductor.glob("??/c*.py"):
        assert torch_compat.inductor_module_name(path.read_bytes()) == path.stem


def test_a_cache_that_cannot_be_repaired_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def compilation() -> None:
        raise RuntimeError(f"Failed to import {tmp_path}/ab/cab.py")

    with pytest.raises(CorruptCacheError, match=f"Delete the directory {tmp_path}"):
        cache_repair.with_repair(compilation)


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def compilation() -> None:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as error:
            raise RuntimeError("while lowering") from error

    with pytest.raises(UnwritableCacheError, match=f"No space left .* Make room in {tmp_path}"):
        cache_repair.with_repair(compilation)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_explained_to_the_user(
    vk: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor writes the module of a graph that it has compiled into a file that takes nothing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    from torch._inductor import codecache

    def write_atomic(path: str, content: str | bytes, *_: object, **__: object) -> None:
        with open("/dev/full", "w") as file:
            file.write(str(content))

    monkeypatch.setattr(codecache, "write_atomic", write_atomic)
    with pytest.raises(UnwritableCacheError, match="set TORCHINDUCTOR_CACHE_DIR"):
        torch.arange(7.0, device=vk).view(1, 1, 1, 1, 7).cosh()


def test_other_errors_pass() -> None:
    def compilation() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        cache_repair.with_repair(compilation)
