"""Eager operators: each becomes a one-op graph, compiled once and found again by its signature.

In: every ATen call on vk tensors that has no kernel of its own in this room. Out: vk tensors.
Forbidden: computing on the CPU, except through `audit.record_fallback`; keeping tensors alive.

The signature of a call is its operator, the geometry of its tensors and its other arguments. The
first call of a signature goes to `signatures.py`, which compiles; later ones only build the
signature, look it up and run. Storage offsets and addresses are no part of it.

Most signatures are computed by one plan of constant sizes. Those are told to the runtime's
`OperatorCalls`, which builds the same signature in C++ and runs the plan; the functions here see
only calls that it does not know, or that somebody watches.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchvk_compile import torch_compat
from torchvk_compile.audit import events
from torchvk_compile.device import random, tensors
from torchvk_compile.device.operators import OperatorInfo, operator_info
from torchvk_compile.profiling import spans

if TYPE_CHECKING:
    from torchvk_compile._runtime import OperatorCalls
    from torchvk_compile.plan.executor import CompiledPlan

Runner = Callable[[list[torch.Tensor], tuple[Any, ...], dict[str, Any]], Any]
"""Runs a compiled call, given its tensors in order and all its arguments; returns the results."""


class DirectCall(NamedTuple):
    """How the runtime computes a signature by itself; see `OperatorCalls.add`."""

    plan: Any
    label: Any
    call: Any
    inputs: tuple[int, ...]
    values: list[int]
    item_bytes: tuple[int, ...]
    returns: str
    results: tuple[int, ...]


Director = Callable[[list[torch.Tensor], tuple[Any, ...], dict[str, Any]], DirectCall]
"""What `DirectCall` stands for a call, given as a `Runner` is given it."""

_MAX_RUNNERS = 8192

# Without torch's Python wrappers around them: every eager call asks.
_SETTINGS = (
    torch._C._get_deterministic_algorithms,
    torch.get_default_dtype,
    torch_compat.rounds_float32_products,
)
"""What a compiled call depends on besides its arguments: True, False or a dtype each."""

_plan_log = logging.getLogger("torchvk.plans")

_UNKNOWN = (None, None)
_any_numbers: dict[tuple[Any, ...] | None, Runner] = {}
_runners: dict[tuple[Any, ...], tuple[Runner, Director | None]] = {}


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
    if info.generator is not None:
        args, kwargs, generator = info.without_generator(args, kwargs)
        if generator is not None:
            with random.drawn_from(generator):
                return call(op, info, args, kwargs)
    return call(op, info, args, kwargs)


def settings() -> tuple[Any, ...]:
    """What torch is set to now, of all that a compiled call depends on besides its arguments."""
    return tuple([setting() for setting in _SETTINGS])


def fallback() -> Callable[..., Any]:
    """The boxed kernel behind every operator without one of its own; takes the operator first."""
    return _known_calls().fallback(lambda op, *args, **kwargs: run(op, args, kwargs))


def kernel(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """A kernel for one operator, registered where torch would prefer a composite implementation."""
    info = operator_info(op)
    if info.generator is not None:
        return lambda *args, **kwargs: run(op, args, kwargs)
    return _known_calls().kernel(op, lambda *args, **kwargs: call(op, info, args, kwargs))


def refuse_self_overlap(target: torch.Tensor) -> None:
    """Raise torch's error for writing to a tensor whose elements share memory."""
    for extent, stride in zip(target.shape, target.stride(), strict=True):
        if stride == 0 and extent > 1:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the operation."
            )


def remember(key: tuple[Any, ...], runner: Runner, director: Director | None) -> None:
    """Let later calls of the signature `key` use `runner`, or what `director` says where there is one.

    Very old signatures are forgotten.
    """
    if len(_runners) >= _MAX_RUNNERS:
        for old in list(_runners)[: _MAX_RUNNERS // 2]:
            _runners.pop(old, None)
    _runners[key] = runner, director


def clear() -> None:
    """Forget all compiled calls (not the shaders on disk)."""
    from torchvk_compile.device import signatures

    _runners.clear()
    _any_numbers.clear()
    _known_calls().clear()
    signatures.clear()


def is_logged() -> bool:
    """Whether somebody reads about every plan that runs; known calls are left to Python then."""
    return _plan_log.isEnabledFor(logging.DEBUG)


def take_watched_calls() -> list[tuple[tuple[CompiledPlan, tuple[int, ...]], int, int, int, bool]]:
    """Calls that the runtime made by itself while `spans.watchers` was not empty, since this was last asked.

    Each is a plan with its symbols, the call's begin and end on `time.perf_counter_ns`, the native number of its
    thread, and whether autograd made it.
    """
    return _known_calls().take_watched()


@functools.cache
def _known_calls() -> OperatorCalls:
    """The calls that the runtime makes by itself."""
    from torchvk_compile import _runtime
    from torchvk_compile.plan import executor

    return _runtime.OperatorCalls(
        tensor_from_capsule=tensors.tensor_from_capsule,
        settings=_SETTINGS,
        listeners=events.listeners,
        is_logged=is_logged,
        launched=executor.note_launch,
        watchers=spans.watchers,
        in_backward_pass=torch_compat.in_backward_pass,
    )


def call(
    op: torch._ops.OpOverload, info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`run` for a call without a generator; every eager operator that is compiled comes through here."""
    found: list[torch.Tensor] = []
    # The operator's description stands for it: hashing an OpOverload runs Python code.
    parts: list[Any] = [info, *settings()]
    _describe(args, parts, found)
    if kwargs:
        for name, value in kwargs.items():
            parts.append(name)
            _describe((value,), parts, found)
    if info.written and len(found) > 1:
        storages = [tensor.untyped_storage()._cdata for tensor in found]
        if len(set(storages)) != len(storages):
            from torchvk_compile.device import aliasing

            cloned = aliasing.separate(op, info, args, kwargs)
            if cloned is not None:
                return call(op, info, *cloned)
            parts.append(aliasing.pattern(found))
    key = tuple(parts)
    runner, director = _runners.get(key, _UNKNOWN)
    if runner is None:
        runner = _any_numbers.get(key_of_any_numbers(info, args, kwargs))
    if runner is None:
        from torchvk_compile.device import signatures

        runner = signatures.compile_call(op, info, args, kwargs, found, key)
    elif director is not None:
        direct = director(found, args, kwargs)
        _known_calls().add(op, args, kwargs, **direct._asdict())
        _runners[key] = runner, None  # told once
    return runner(found, args, kwargs)


def key_of_any_numbers(
    info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    """What calls have in common that differ in the values of their floats; None if there are no such calls.

    Which arguments share memory is not part of it: calls that write and whose tensors do are none of them.
    """
    found: list[torch.Tensor] = []
    parts: list[Any] = [info, *settings()]
    _describe(args, parts, found, exact=False)
    for name, value in kwargs.items():
        parts.append(name)
        _describe((value,), parts, found, exact=False)
    if float not in parts:
        return None
    if info.written:
        storages = {tensor.untyped_storage()._cdata for tensor in found}
        if len(storages) != len(found):
            return None
    return tuple(parts)


def remember_any_numbers(key: tuple[Any, ...], runner: Runner) -> None:
    """Let calls whose `key_of_any_numbers` is `key` use `runner`, which reads the numbers from each call."""
    if len(_any_numbers) < _MAX_RUNNERS:
        _any_numbers[key] = runner


def _describe(
    values: Iterable[Any], parts: list[Any], found: list[torch.Tensor], *, exact: bool = True
) -> None:
    """Append to `parts` what distinguishes a call, and its tensors to `found`.

    Unless `exact`, any float is like any other.
    """
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
            parts.append((value.dtype, value.shape, value.stride(), value.get_device()))
        elif isinstance(value, (list, tuple)):
            parts.append(len(value))
            _describe(value, parts, found, exact=exact)
        elif isinstance(value, float):
            # Its digits tell -0.0 from 0.0 and find NaN again.
            parts.append(value.hex() if exact else float)
        elif isinstance(value, complex):
            parts.append((value.real.hex(), value.imag.hex()))
        else:
            # 1, True and 1.0 are equal keys but different calls.
            parts.append(value if value is None else (type(value), value))
