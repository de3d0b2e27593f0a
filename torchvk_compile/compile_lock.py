"""One compilation at a time in a process, whoever asks for it: Dynamo, autograd's backward pass, an eager operator.

In: work that traces or compiles. Out: its result. Forbidden: taking the lock on a thread that another one waits for.

Torch's tracing keeps its state by process: the current tracer, what is known of the current node and, up to torch 2.11,
changed settings. Dynamo compiles under a lock for that reason; everything else that compiles takes the same one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from torchvk_compile import torch_compat

_P = ParamSpec("_P")
_R = TypeVar("_R")

_this_thread = threading.local()


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other thread compiles, and keep others from it. May be nested.

    A `Deputy`'s thread passes: the thread that waits for it has the lock.
    """
    if getattr(_this_thread, "deputy", None) is not None:
        yield
        return
    with torch_compat.dynamo_lock():
        yield


class Deputy:
    """A thread that compiles for others, one after another, free of what the calling thread has set.

    The thread begins with the first work and is not there in forked processes.

    Args:
        name: of the thread.
        prepare: called on the thread before anything else.
    """

    def __init__(self, name: str, prepare: Callable[[], Any] = lambda: None) -> None:
        self._prepare = prepare
        self._pool = ThreadPoolExecutor(1, name, initializer=self._begin)

    def run(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """What the function returns or raises there. Work that the thread itself asks for is done at once."""
        if getattr(_this_thread, "deputy", None) is self:
            return function(*args, **kwargs)
        with one_at_a_time():
            return self._pool.submit(function, *args, **kwargs).result()

    def _begin(self) -> None:
        _this_thread.deputy = self
        self._prepare()
