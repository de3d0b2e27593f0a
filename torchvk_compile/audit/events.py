"""What happens on the device, told to the audits that are under way.

In: plans that run, bytes that move, operators on the CPU. Out: calls of every listener.
Forbidden: costing anything but one test of `listeners` while nobody listens; keeping tensors.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType
from typing import TYPE_CHECKING, Literal, Protocol

from torchvk_compile.plan.origins import Frame, source_lines

if TYPE_CHECKING:
    from torchvk_compile.plan.executor import CompiledPlan

Transfer = Literal["upload", "download", "copy", "fill"]


class Listener(Protocol):
    """Somebody who wants to know. Called from any thread."""

    def plan_ran(self, record: CompiledPlan, caller: Frame | None) -> None: ...
    def transferred(
        self, kind: Transfer, nbytes: int, caller: Frame | None, compiling: bool
    ) -> None: ...
    def ran_on_host(self, op: str, caller: Frame | None) -> None: ...


listeners: list[Listener] = []
"""The audits under way. Whoever tells something tests this list first, since that is cheap."""

_WAITERS = ("_engine_run_backward", "compile_call")
"""Functions in which a thread waits for another: for the backward pass (torch/autograd/graph.py), for
the compilation of an eager operator (device/signatures.py)."""

_COMPILERS = (
    os.path.join("torch", "_inductor", "compile_fx.py"),
    os.path.join("torch", "_inductor", "fx_passes", "joint_graph.py"),
)

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO = os.path.join(_PACKAGE, "demo", "")
"""The one part of this package that is a user's program."""

_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")
_SITE_PACKAGES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")
)


def plan_ran(record: CompiledPlan) -> None:
    """A plan was submitted."""
    caller = user_frame()
    for listener in list(listeners):
        listener.plan_ran(record, caller)


def transferred(kind: Transfer, nbytes: int) -> None:
    """Bytes were moved or filled without a kernel."""
    caller, compiling = user_frame(), _compiling(sys._getframe(1))
    for listener in list(listeners):
        listener.transferred(kind, nbytes, caller, compiling)


def ran_on_host(op: str) -> None:
    """An operator on device tensors was computed on the CPU."""
    caller = user_frame()
    for listener in list(listeners):
        listener.ran_on_host(op, caller)


def user_frame() -> Frame | None:
    """The innermost line of the user's program that leads here; None if there is none.

    Frames of torch, of this package, of the standard library and of generated code are passed over.
    The backward pass and eager compilations have threads of their own; then the line that waits for
    them is meant.
    """
    return _innermost(sys._getframe(1)) or _waiting()


def _compiling(frame: FrameType | None) -> bool:
    """Whether Inductor is at work: it makes small tensors of its own, once a process or a graph."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(_COMPILERS):
            return True
        frame = frame.f_back
    return False


def _innermost(frame: FrameType | None) -> Frame | None:
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            lines = source_lines(file)
            number = frame.f_lineno
            code = lines[number - 1].strip() if 1 <= number <= len(lines) else ""
            return Frame(file, number, frame.f_code.co_name, code)
        frame = frame.f_back
    return None


def _waiting() -> Frame | None:
    """The line of a thread that waits for the work of this one."""
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None and frame.f_code.co_name not in _WAITERS:
            frame = frame.f_back
        if (found := _innermost(frame)) is not None:
            return found
    return None


def is_users(file: str) -> bool:
    """Whether a source file is part of the user's program."""
    if file.startswith(_DEMO):
        return True
    if file.startswith(("<frozen ", "<eval_with_key", _PACKAGE)):
        return False
    if file.startswith(_LIBRARY) and not file.startswith(_SITE_PACKAGES):
        return False
    return not file.startswith((_torch_directory(), _generated_directory()))


def _torch_directory() -> str:
    return os.path.join(os.path.dirname(sys.modules["torch"].__file__ or "torch"), "")


def _generated_directory() -> str:
    # Inductor sets the variable when it writes its first module.
    return os.path.join(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "<no directory>", "")
