"""Stretches of host time, told to the profiles that are under way.

In: the begin and end of plan calls, transfers and phases of compilation. Out: `Span`s, to every watcher.
Forbidden: costing more than one test of `watchers` while nobody watches; importing the rooms that report.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torchvk_compile import torch_compat

if TYPE_CHECKING:
    from torchvk_compile.plan.executor import CompiledPlan

Category = Literal["plan", "transfer", "compile"]


@dataclass(slots=True)
class Span:
    """What one thread did for a while.

    Attributes:
        name: of the plan; "upload", "download", "copy" or "fill"; of the phase of compilation.
        begin_ns, end_ns: of `time.perf_counter_ns`.
        thread: `threading.get_native_id` of the thread.
        details: of a plan's call as `plan_details`; of a transfer ``nbytes``.
    """

    category: Category
    name: str
    begin_ns: int
    end_ns: int
    thread: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def duration_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.begin_ns


class Watcher(Protocol):
    """Somebody who wants to know. Called from any thread."""

    def plan_starts(self, plan: CompiledPlan) -> None: ...
    def finished(self, span: Span) -> None: ...


watchers: list[Watcher] = []
"""The profiles under way. The executor tests this list itself, since that is cheap; so does the runtime, which
keeps the calls of eager operators that Python code has no part in."""

_NOT_WATCHED = contextlib.nullcontext()


def span(category: Category, name: str, **details: Any) -> contextlib.AbstractContextManager[Any]:
    """A context whose duration the watchers are told; nothing while there are none."""
    return _Open(category, name, details) if watchers else _NOT_WATCHED


def plan_span(
    plan: CompiledPlan, symbols: tuple[int, ...]
) -> contextlib.AbstractContextManager[Any]:
    """As `span`, for one call of a plan that is about to be submitted."""
    for watcher in watchers:
        watcher.plan_starts(plan)
    details = plan_details(plan, symbols, torch_compat.in_backward_pass())
    return _Open("plan", plan.plan.name, details)


def plan_details(plan: CompiledPlan, symbols: tuple[int, ...], backward: bool) -> dict[str, Any]:
    """What a plan's call is known by: also the sizes of its inputs, and whether autograd called it."""
    return {"plan": plan, "symbols": symbols, "backward": backward}


class _Thread(threading.local):
    """The calling thread, by a number that the operating system is asked for once."""

    def __init__(self) -> None:
        self.id = threading.get_native_id()


_thread = _Thread()


class _Open:
    __slots__ = ("_span",)

    def __init__(self, category: Category, name: str, details: dict[str, Any]) -> None:
        self._span = Span(category, name, 0, 0, _thread.id, details)

    def __enter__(self) -> None:
        self._span.begin_ns = perf_counter_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._span.end_ns = perf_counter_ns()
        for watcher in list(watchers):
            watcher.finished(self._span)
