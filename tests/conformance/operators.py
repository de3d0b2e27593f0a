"""Entries of op_db: forward and backward, against CPU eager.

In: a case. Out: its result. Forbidden: leaving out what fails.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import torch

from . import draws, factorizations, free_choice, samples
from .cases import Case, differentiable, entries
from .comparison import Mismatch, compare
from .execution import DEVICE, Limits, in_mode
from .gradients import (
    cotangents_for,
    differentiable_in,
    gradients_of,
    on_device_of,
    require_same_form,
)
from .norms import narrowed_statistics
from .placement import place, tensors_in
from .precision import attempt, widened
from .records import Direction, Result
from .tolerances import overrides
from .trials import Attempts, result_of

_CPU = torch.device("cpu")

_ARGUMENTS_ON_CPU = ("tensor_split",)
"""Operators whose tensor arguments after the first belong on the CPU, whatever the device."""


def run(case: Case, limits: Limits) -> Result:
    """Run a case of op_db.

    Raises:
        ProcessPoisoned: the case's result is in it, but no other case can run in this process.
    """
    started = time.monotonic()
    trial = _OperatorTrial(case)
    forward = trial.forward(limits.forward)
    backward = Attempts()
    if differentiable(case) and not forward.poisoned:
        backward = trial.backward(limits.backward)
    return result_of(case, forward, backward, started)


class _OperatorTrial:
    """One case on its way through both directions."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.info = entries("op")[case.name]
        self.allowed = overrides(self.info, case.torch_dtype)

    def forward(self, limit: int) -> Attempts:
        attempts = Attempts()
        for position, sample in self._samples(limit, requires_grad=False):
            attempts.attempt(
                f"sample {position} ({_arguments(sample)})",
                functools.partial(self._forward_sample, sample),
            )
        if self.case.name in draws.POPULATIONS:
            attempts.attempt("population", self._population)
        return attempts

    def backward(self, limit: int) -> Attempts:
        attempts = Attempts()
        for position, sample in self._samples(limit, requires_grad=True):
            attempts.attempt(
                f"sample {position} ({_arguments(sample)})",
                functools.partial(self._backward_sample, sample),
            )
        return attempts

    def _samples(self, limit: int, *, requires_grad: bool) -> list[tuple[int, Any]]:
        samples.seed_for(self.case.name)
        dtype = self.case.torch_dtype
        found = self.info.sample_inputs("cpu", dtype, requires_grad=requires_grad)
        # With a CUDA build of torch, a few samples are about moving to a CUDA device.
        here = (s for s in found if not samples.needs_cuda([s.input, s.args, s.kwargs]))
        return samples.spread(here, limit)

    def _forward_sample(self, sample: Any, direction: Direction) -> bool:
        arguments = (sample.input, sample.args, sample.kwargs)
        mine, theirs = self._on_device(arguments), place(arguments, _CPU)
        try:
            expected = self._call(*theirs)
        except Exception:
            return False
        actual = in_mode(self._call, self.case.mode)(*mine)
        actual = narrowed_statistics(self.case.name, actual, expected)

        def exact() -> Any:
            wide = widened(arguments)
            return None if wide is None else self._call(*wide)

        call = free_choice.Call(self.case.name, *place(arguments, _CPU))
        reference = None if free_choice.is_drawn(call) else attempt(exact)
        try:
            direction.passed_by(compare(actual, expected, self.allowed, reference))
        except Mismatch:
            check = free_choice.check_for(call)
            if check is None:
                raise
            check(call, expected, actual)
            direction.free += 1
            return True
        self._compare_inputs(mine, theirs)
        return True

    def _compare_inputs(self, mine: Any, theirs: Any) -> None:
        for some, other in zip(tensors_in(mine), tensors_in(theirs), strict=True):
            try:
                compare(some, other, self.allowed)
            except Mismatch as error:
                raise Mismatch(f"an input after the call: {error}") from None

    def _backward_sample(self, sample: Any, direction: Direction) -> bool:
        arguments = (sample.input, sample.args, sample.kwargs)

        def function(*call: Any) -> list[torch.Tensor]:
            return differentiable_in(sample.output_process_fn_grad(self._call(*call)))

        theirs, mine = place(arguments, _CPU), self._on_device(arguments)
        try:
            outputs = function(*theirs)
            cotangents = cotangents_for(outputs)
            expected = gradients_of(outputs, theirs, cotangents)
        except Exception:
            return False
        if not outputs:
            return False
        results = in_mode(function, self.case.mode)(*mine)
        require_same_form(results, outputs)

        def ordered_for(own: list[torch.Tensor]) -> list[torch.Tensor]:
            return factorizations.in_eigenvalue_order(self.case.name, own, outputs, cotangents)

        actual = gradients_of(results, mine, on_device_of(results, ordered_for(results)))

        def exact() -> Any:
            wide = widened(arguments)
            if wide is None:
                return None
            again = function(*wide)
            own = [c.to(o.dtype) for c, o in zip(ordered_for(again), again, strict=True)]
            return gradients_of(again, wide, own)

        call = free_choice.Call(self.case.name, *place(arguments, _CPU))
        reference = None if free_choice.is_drawn(call) else attempt(exact)
        try:
            direction.passed_by(compare(actual, expected, self.allowed, reference))
        except Mismatch:
            if not free_choice.check_gradients(call, results, cotangents, actual, expected):
                raise
            direction.free += 1
        return True

    def _population(self, _: Direction) -> bool:
        population = draws.POPULATIONS[self.case.name]
        dtype = self.case.torch_dtype
        try:
            population(_CPU, dtype)
        except Exception:
            return False
        function = in_mode(population, self.case.mode)

        def draw(device: torch.device) -> torch.Tensor:
            return (population if device == _CPU else function)(device, dtype)

        draws.check_population(self.case.name, draw, DEVICE)
        return True

    def _on_device(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        input, args, kwargs = place(arguments, DEVICE)
        if self.case.name in _ARGUMENTS_ON_CPU:
            args = place(arguments, _CPU)[1]
        return input, args, kwargs

    def _call(self, input: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.info.op(input, *args, **kwargs)


def _arguments(sample: Any) -> str:
    text = samples.summary([sample.input, *sample.args])
    return f"{text} {samples.summary(sample.kwargs)}"[:600].strip()
