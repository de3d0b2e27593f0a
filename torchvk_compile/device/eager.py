"""Eager operators: each becomes a one-op graph, compiled once and found again by its signature.

In: every ATen call on vk tensors that has no kernel of its own in this room. Out: vk tensors.
Forbidden: computing on the CPU, except through `audit.record_fallback`; keeping tensors alive.

The signature of a call is its operator, the geometry of its tensors and its other arguments. The first
call of a signature goes to `signatures.py`, which compiles; later ones only build the signature, look
it up and run. Storage offsets and addresses are no part of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchvk_compile.device import physical, random
from torchvk_compile.device.operators import OperatorInfo, operator_info

Runner = Callable[[list[torch.Tensor], tuple[Any, ...], dict[str, Any]], Any]
"""Runs a compiled call: its tensors in order of appearance, all arguments. Returns the op's results."""

_MAX_ENTRIES = 8192

_runners: dict[tuple[Any, ...], Runner] = {}


def run(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an ATen operator on vk tensors.

    Args:
        op: a functional, in-place or ``out=`` overload.
        args, kwargs: as the dispatcher passes them; 0-d CPU tensors count as scalars.

    Raises:
        UnsupportedOperatorError: the compiler has no kernel for it, or the device lacks the dtype.
        RuntimeError, ValueError, …: what torch raises for the same wrong arguments.
    """
    info = operator_info(op)
    if info.has_generator:
        args, kwargs, generator = info.without_generator(args, kwargs)
        if generator is not None:
            with random.drawn_from(generator):
                return _run(op, info, args, kwargs)
    return _run(op, info, args, kwargs)


def fallback(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The boxed kernel behind every operator without one of its own."""
    return run(op, args, kwargs)


def kernel(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """A kernel for one operator, to be preferred over torch's composite implementation of it."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return run(op, args, kwargs)

    return function


def entry_count() -> int:
    """Number of signatures that run without compiling."""
    return len(_runners)


def clear() -> None:
    """Forget all compiled calls; the shaders stay in the cache on disk."""
    from torchvk_compile.device import signatures

    _runners.clear()
    signatures.clear()


def _run(
    op: torch._ops.OpOverload, info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    found: list[torch.Tensor] = []
    parts: list[Any] = [op]
    _describe(args, parts, found)
    if kwargs:
        for name, value in kwargs.items():
            parts.append(name)
            _describe((value,), parts, found)
    else:
        # Without tensors nothing else says where the result lives; with them this is redundant.
        parts.append(None)
    if info.mutates and len(found) > 1:
        aliases = info.aliases(found)
        if aliases is not None:
            args, kwargs = info.separated(args, kwargs, found, aliases)
            return _run(op, info, args, kwargs) if aliases.cloned else _run_aliased(
                op, info, args, kwargs, tuple(parts) + aliases.pattern
            )
    key = tuple(parts)
    runner = _runners.get(key)
    if runner is None:
        runner = _compile(op, info, args, kwargs, key)
    return runner(found, args, kwargs)
