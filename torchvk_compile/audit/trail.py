"""Which line of the user's program caused what: the events of one audit, added up.

In: events. Out: `Entry` records, most frequent first.
Forbidden: counting anything that `Audit` counts by itself; formatting.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torchvk_compile.audit.events import Transfer, is_users
from torchvk_compile.plan.origins import Frame, Origin

if TYPE_CHECKING:
    from torchvk_compile.plan.executor import CompiledPlan

Kind = Literal["dispatch", "upload", "download", "copy", "fill", "cpu"]


@dataclass(frozen=True)
class Entry:
    """One thing that one place in the program caused.

    Attributes:
        kind: a kernel launch ("dispatch"), a transfer, or an operator computed on the CPU ("cpu").
        what: the operators a kernel computes, joined by " + "; the operator on the CPU; of
            transfers "while compiling" if the compiler made them, else empty.
        place: ``file:line``, several joined by ", " where a kernel fuses several lines; empty where
            no line of the program is known.
        code: text of the (first) line.
        count: how often.
        nbytes: bytes moved, of transfers.
    """

    kind: Kind
    what: str
    place: str
    code: str
    count: int
    nbytes: int

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain data, for JSON."""
        return dict(vars(self))


class Trail:
    """A listener that adds up what it is told. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: Counter[tuple[CompiledPlan, Frame | None]] = Counter()
        self._transfers: Counter[tuple[Transfer, Frame | None, bool]] = Counter()
        self._bytes: Counter[tuple[Transfer, Frame | None, bool]] = Counter()
        self._host: Counter[tuple[str, Frame | None]] = Counter()

    def plan_ran(self, record: CompiledPlan, caller: Frame | None) -> None:
        """A plan was submitted."""
        with self._lock:
            self._runs[record, caller] += 1

    def transferred(
        self, kind: Transfer, nbytes: int, caller: Frame | None, compiling: bool
    ) -> None:
        """Bytes were moved or filled."""
        with self._lock:
            self._transfers[kind, caller, compiling] += 1
            self._bytes[kind, caller, compiling] += nbytes

    def ran_on_host(self, op: str, caller: Frame | None) -> None:
        """An operator was computed on the CPU."""
        with self._lock:
            self._host[op, caller] += 1

    def shader_digests(self) -> set[str]:
        """SHA-256 of the SPIR-V of every plan that ran."""
        with self._lock:
            return {record.shader_digest for record, _ in self._runs}

    def entries(self) -> list[Entry]:
        """Everything, by kind, most frequent first."""
        with self._lock:
            runs = dict(self._runs)
            transfers = dict(self._transfers)
            host = dict(self._host)
        dispatches: Counter[tuple[str, tuple[Frame, ...]]] = Counter()
        for (record, caller), count in runs.items():
            for what, frames in _steps(record, caller):
                dispatches[what, frames] += count
        found = [
            _entry("dispatch", what, frames, count) for (what, frames), count in dispatches.items()
        ]
        found += [
            _entry(
                kind,
                "while compiling" if compiling else "",
                _frames(caller),
                count,
                self._bytes[kind, caller, compiling],
            )
            for (kind, caller, compiling), count in transfers.items()
        ]
        found += [
            _entry("cpu", op.removesuffix(".default"), _frames(caller), count)
            for (op, caller), count in host.items()
        ]
        order = ("cpu", "dispatch", "upload", "download", "copy", "fill")
        return sorted(found, key=lambda e: (order.index(e.kind), -e.count, e.place, e.what))


def _steps(record: CompiledPlan, caller: Frame | None) -> list[tuple[str, tuple[Frame, ...]]]:
    """Operators and lines of every dispatch of a plan; without lines of its own, the caller's."""
    steps = []
    for step in record.plan.steps:
        origins = record.plan.origins_of(step)
        names = dict.fromkeys(_name(origin) for origin in origins)
        what = " + ".join(names) or step.kernel
        # An optimizer's operators have only torch's lines: then the line of the call is meant.
        own = [[f for f in origin.frames if is_users(f.file)] for origin in origins]
        lines = dict.fromkeys(frames[0] for frames in own if frames)
        steps.append((what, tuple(lines) or _frames(caller)))
    return steps


def _name(origin: Origin) -> str:
    name = (origin.composite or origin.op).removesuffix(".default")
    return f"{name} in {origin.module}" if origin.module else name


def _frames(caller: Frame | None) -> tuple[Frame, ...]:
    return () if caller is None else (caller,)


def _entry(kind: Kind, what: str, frames: tuple[Frame, ...], count: int, nbytes: int = 0) -> Entry:
    place = ", ".join(dict.fromkeys(str(frame) for frame in frames))
    return Entry(kind, what, place, frames[0].code if frames else "", count, nbytes)
