"""Running candidates: the problem as a graph of its own, compiled with each configuration and timed on the device.

In: a `Problem` and configurations. Out: device times of each. Forbidden: choosing; touching the graph whose compilation
asks; the user's random state.

All of it happens on one thread of its own: Inductor, torch's tracing and its dispatch modes keep their state by thread,
and the thread that asks is in the middle of compiling. One thread also means that no two measurements run at once.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torchvk_compile import torch_compat
from torchvk_compile.compile_lock import Deputy
from torchvk_compile.errors import DeviceLostError
from torchvk_compile.log import logger
from torchvk_compile.profiling.recording import Recorder, Recording
from torchvk_compile.tuning.problem import Problem, TensorSpec

_ROUNDS = 11
"""Turns that every candidate gets, where they fit `_LONGEST_SECONDS`."""

_FEWEST_ROUNDS = 5
_LONGEST_SECONDS = 3.0
"""Device time of one problem's measurement, if `_FEWEST_ROUNDS` do not take longer."""

_TURN_SECONDS = 1e-3
"""Device time of one turn at least: a call that is shorter is made several times, at most `_MOST_CALLS`."""

_MOST_CALLS = 20

_WARM_CALLS = 4
"""Calls after the compilation, of which the first does not count."""

_OUT_OF_REACH = 1.5
"""A candidate that takes this much longer than the fastest when it warms up is not measured further."""

_candidate: contextvars.ContextVar[Any] = contextvars.ContextVar("candidate", default=None)
_deputy = Deputy("torchvk-tuning")


def candidate() -> Any:
    """The configuration that this thread is compiling a trial of, or None."""
    return _candidate.get()


@dataclasses.dataclass(frozen=True)
class Times:
    """Device times of a candidate, in nanoseconds; a split product's second pass is part of them.

    Attributes:
        samples: one per call.
        in_reach: False for a candidate that was given up after it had warmed up.
    """

    samples: tuple[float, ...]
    in_reach: bool = True

    def __str__(self) -> str:
        given_up = "" if self.in_reach else ", given up"
        return f"{self.median / 1e3:.1f} us{given_up}"

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper one."""
        lower, _, upper = statistics.quantiles(self.samples, n=4, method="inclusive")
        return lower, upper


def measure(problem: Problem, candidates: Sequence[Any]) -> dict[Any, Times]:
    """Device times of the candidates that compile and run.

    A candidate that fails is left out, with a line in the log. One that is out of reach has the times it warmed up
    with.

    Raises:
        DeviceLostError: nothing runs on the device any more.
    """
    return _deputy.run(_measure, problem, tuple(candidates))


def _measure(problem: Problem, candidates: tuple[Any, ...]) -> dict[Any, Times]:
    with torch.no_grad():
        inputs = _Inputs(problem)
        runs: dict[Any, Callable[[], None]] = {}
        warm: dict[Any, Times] = {}
        for config in candidates:
            with _skipping(problem, config):
                begin = time.perf_counter()
                run = _compiled(problem, inputs, config)
                warm[config] = _timed(
                    {config: run}, {config: _WARM_CALLS}, 1, problem.device_index
                )[config]
                runs[config] = run
                seconds = time.perf_counter() - begin
                logger("tuning").debug(
                    "%s: %s compiled and warm in %.2f s", problem, config, seconds
                )
        if not warm:
            return {}
        first = {config: min(times.samples[1:]) for config, times in warm.items()}
        limit = _OUT_OF_REACH * min(first.values())
        kept = [c for c in runs if first[c] <= limit or c == candidates[0]]
        calls = {
            c: min(_MOST_CALLS, max(1, math.ceil(1e9 * _TURN_SECONDS / first[c]))) for c in kept
        }
        turn = sum(first[c] * calls[c] for c in kept) / 1e9
        rounds = max(_FEWEST_ROUNDS, min(_ROUNDS, int(_LONGEST_SECONDS / turn)))
        measured = _timed({c: runs[c] for c in kept}, calls, rounds, problem.device_index)
        return {c: dataclasses.replace(warm[c], in_reach=False) for c in warm} | measured


@contextlib.contextmanager
def _skipping(problem: Problem, config: Any) -> Iterator[None]:
    try:
        yield
    except DeviceLostError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        logger("tuning").warning(
            "%s: %s is left out (%s: %s)", problem, config, type(error).__name__, reason
        )


def _compiled(problem: Problem, inputs: _Inputs, config: Any) -> Callable[[], None]:
    """The problem with a configuration, compiled; a call submits it once."""
    from torchvk_compile.backend import compile_graph
    from torchvk_compile.device import one_op_graph
    from torchvk_compile.device.operators import operator_info

    args, kwargs = inputs.args, inputs.kwargs
    call = one_op_graph.Call.of(problem.operator, operator_info(problem.operator), args, kwargs)
    graph = one_op_graph.trace(call, range(len(call.tensors)), None, (), ())
    token = _candidate.set(config)
    try:
        # Torch's caches know nothing of the candidate.
        with torch_compat.patched_settings()(force_disable_caches=True):
            compiled = compile_graph(graph.module, graph.example_inputs)
    finally:
        _candidate.reset(token)
    function = torch_compat.without_bookkeeping(compiled)
    tensors = [call.leaves[position] for position in call.tensors]

    def run() -> None:
        function(list(tensors))

    return run


def _timed(
    runs: dict[Any, Callable[[], None]], calls: dict[Any, int], rounds: int, device_index: int
) -> dict[Any, Times]:
    """Device times with the candidates taking turns, so that whatever else the machine does meets them all."""
    recorder = Recorder(annotations=False)
    recorder.start()
    turns: list[tuple[Any, int, int]] = []
    try:
        for _ in range(rounds):
            for config, run in runs.items():
                begin = time.perf_counter_ns()
                for _ in range(calls[config]):
                    run()
                turns.append((config, begin, time.perf_counter_ns()))
                torch.vk.synchronize(device_index)  # type: ignore[attr-defined]
    finally:
        recording = recorder.stop()
    if recording.untimed:
        raise NotImplementedError(f"{', '.join(recording.untimed)} cannot take timestamps")
    return {
        config: Times(
            tuple(
                time
                for turn_config, begin, end in turns
                if turn_config == config
                for time in _calls_between(recording, begin, end)
            )
        )
        for config in runs
    }


def _calls_between(recording: Recording, begin: int, end: int) -> list[float]:
    """Device time of every call of this thread in a stretch of host time: from its first dispatch to its last."""
    spans: dict[int, list[float]] = {}
    for run in recording.kernels:
        call = run.call
        if call.thread == threading.get_native_id() and begin <= call.begin_ns <= end:
            span = spans.setdefault(id(call), [math.inf, 0.0])
            span[0] = min(span[0], run.begin_ns)
            span[1] = max(span[1], run.begin_ns + run.duration_ns)
    return [last - first for first, last in spans.values()]


class _Inputs:
    """A problem's tensors on the device, with random elements, shared by its candidates."""

    def __init__(self, problem: Problem) -> None:
        self._device = torch.device("vk", problem.device_index)
        self._random = torch.Generator().manual_seed(0)
        self.args, self.kwargs = problem.call(self._tensor)

    def _tensor(self, spec: TensorSpec) -> torch.Tensor:
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            numbers = torch.rand(spec.extent, generator=self._random) - 0.5
        else:
            numbers = torch.randint(0, 2, (spec.extent,), generator=self._random)
        return numbers.to(dtype).to(self._device).as_strided(spec.size, spec.stride)
