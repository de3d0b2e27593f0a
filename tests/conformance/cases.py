"""What there is to run: one case is an entry of a database in one dtype and one mode.

In: PyTorch's databases and a selection. Out: cases, entries of one operator beside each other.
Forbidden: running anything.
"""

from __future__ import annotations

import fnmatch
import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "bool")
MODES = ("compiled", "eager", "dynamic")
DEFAULT_MODES = ("compiled", "eager")
DATABASES = ("op", "module", "optimizer")


@dataclass(frozen=True)
class Case:
    """One entry of a database, in one dtype and one mode.

    Attributes:
        database: ``op``, ``module`` or ``optimizer``.
        name: the entry's name with its variant, as in ``div_floor_rounding``.
        dtype: a torch dtype's name, as in ``float32``.
        mode: ``compiled``, ``eager`` or ``dynamic`` (compiled with dynamic shapes).
    """

    database: str
    name: str
    dtype: str
    mode: str

    @property
    def key(self) -> str:
        return f"{self.database}:{self.name}:{self.dtype}:{self.mode}"

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @staticmethod
    def from_key(key: str) -> Case:
        """The case of a key that `key` made.

        Raises:
            ValueError: when the key has another form.
        """
        parts = key.split(":")
        if len(parts) != 4 or parts[0] not in DATABASES or parts[3] not in MODES:
            raise ValueError(f"not a conformance case: {key!r}")
        return Case(*parts)


@dataclass(frozen=True)
class Selection:
    """Which cases to run.

    Attributes:
        databases, dtypes, modes: members to keep, in this order.
        patterns: shell patterns of entry names; empty keeps all.
        shard: (index from 1, count): the part of the entries to keep.
        fraction: the share of cases to keep, chosen by `seed`; 1.0 keeps all.
    """

    databases: Sequence[str] = DATABASES
    dtypes: Sequence[str] = DTYPES
    modes: Sequence[str] = DEFAULT_MODES
    patterns: Sequence[str] = ()
    shard: tuple[int, int] = (1, 1)
    fraction: float = 1.0
    seed: int = 0


@functools.cache
def entries(database: str) -> dict[str, Any]:
    """The entries of a database by name, in the database's order."""
    if database == "op":
        from torch.testing._internal.common_methods_invocations import op_db

        return {info.formatted_name: info for info in op_db}
    if database == "module":
        from torch.testing._internal.common_modules import module_db

        return {info.formatted_name: info for info in module_db}
    from torch.testing._internal.common_optimizers import optim_db

    return {info.name: info for info in optim_db}


def supported_dtypes(database: str, info: Any) -> set[torch.dtype]:
    """The dtypes CPU eager supports for an entry, by the database's own word."""
    if database == "optimizer":
        return {torch.float32}
    return set(info.supported_dtypes("cpu"))


def differentiable(case: Case) -> bool:
    """Whether the case has a backward direction that CPU eager supports."""
    if case.database == "optimizer":
        return False
    if case.database == "module":
        return case.torch_dtype.is_floating_point
    info = entries("op")[case.name]
    return case.torch_dtype in info.supported_backward_dtypes("cpu")


def select(selection: Selection) -> list[Case]:
    """The selected cases, all of one entry beside each other."""
    chosen: list[Case] = []
    for database in selection.databases:
        for name, info in entries(database).items():
            if not _matches(name, selection.patterns) or not _in_shard(name, selection.shard):
                continue
            dtypes = supported_dtypes(database, info)
            chosen += [
                case
                for case in _of_entry(database, name, selection)
                if case.torch_dtype in dtypes and _drawn(case, selection)
            ]
    return chosen


def listed(path: Path) -> list[Case]:
    """The cases a file lists, one key a line; what follows a ``#`` is a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [Case.from_key(line) for line in lines if line]


def _of_entry(database: str, name: str, selection: Selection) -> Iterator[Case]:
    for mode in selection.modes:
        for dtype in selection.dtypes:
            yield Case(database, name, dtype, mode)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    patterns = tuple(patterns)
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _in_shard(name: str, shard: tuple[int, int]) -> bool:
    index, count = shard
    return zlib.crc32(name.encode()) % count == index - 1


def _drawn(case: Case, selection: Selection) -> bool:
    if selection.fraction >= 1.0:
        return True
    # A hash and not a generator: the choice of a case does not depend on the others selected.
    draw = zlib.crc32(f"{selection.seed}/{case.key}".encode()) / 2**32
    return draw < selection.fraction
