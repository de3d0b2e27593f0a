"""Entries of module_db: forward, buffers and gradients, training and evaluating.

In: a case. Out: its result. Forbidden: giving the two devices different parameters.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter

from . import samples
from .cases import Case, differentiable, entries
from .comparison import Mismatch, compare
from .draws import check_form
from .execution import DEVICE, Limits, in_mode
from .gradients import (
    cotangents_for,
    differentiable_in,
    gradients_of,
    on_device_of,
    require_same_form,
)
from .placement import place, tensors_in
from .precision import attempt, widened
from .records import Direction, Result
from .tolerances import overrides
from .trials import Attempts, result_of

_CPU = torch.device("cpu")

_DRAWING = ("nn_FractionalMaxPool2d", "nn_FractionalMaxPool3d")
"""Modules whose result depends on a draw also without dropout."""


def run(case: Case, limits: Limits) -> Result:
    """Run a case of module_db.

    Raises:
        ProcessPoisoned: the case's result is in it, but no other case can run in this process.
    """
    started = time.monotonic()
    trial = _ModuleTrial(case)
    forward = trial.run_direction(trial.forward_sample, limits.forward, requires_grad=False)
    backward = Attempts()
    if differentiable(case) and not forward.poisoned:
        backward = trial.run_direction(trial.backward_sample, limits.backward, requires_grad=True)
    return result_of(case, forward, backward, started)


class _ModuleTrial:
    """One case on its way through both directions."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.info = entries("module")[case.name]
        self.allowed = overrides(self.info, case.torch_dtype)

    def run_direction(
        self, run_one: Callable[..., bool], limit: int, *, requires_grad: bool
    ) -> Attempts:
        attempts = Attempts()
        for training in (True, False):
            samples.seed_for(self.case.name)
            found = self.info.module_inputs_func(
                self.info,
                device="cpu",
                dtype=self.case.torch_dtype,
                requires_grad=requires_grad,
                training=training,
            )
            for position, sample in samples.spread(found, limit):
                attempts.attempt(
                    f"sample {position} {'training' if training else 'evaluating'} {sample.desc}",
                    functools.partial(run_one, sample, training),
                )
        return attempts

    def forward_sample(self, sample: Any, training: bool, direction: Direction) -> bool:
        arguments = (sample.forward_input.args, sample.forward_input.kwargs)
        theirs = self._module(sample, training)
        mine, wide = copy.deepcopy(theirs), copy.deepcopy(theirs)
        with torch.no_grad():
            try:
                expected = _call(theirs, *place(arguments, _CPU))
            except Exception:
                return False
            mine = mine.to(DEVICE)
            actual = in_mode(functools.partial(_call, mine), self.case.mode)(
                *place(arguments, DEVICE)
            )

            def exact() -> Any:
                own = copy.deepcopy(wide).double()
                return _result(own, _call(own, *widened(arguments)))

            self._compare(
                _result(mine, actual), _result(theirs, expected), direction, attempt(exact)
            )
        return True

    def backward_sample(self, sample: Any, training: bool, direction: Direction) -> bool:
        arguments = (sample.forward_input.args, sample.forward_input.kwargs)
        theirs = self._module(sample, training)
        mine, wide = copy.deepcopy(theirs), copy.deepcopy(theirs)
        inputs = place(arguments, _CPU)
        try:
            outputs = differentiable_in(_call(theirs, *inputs))
            cotangents = cotangents_for(outputs)
            expected = gradients_of(outputs, [inputs, list(theirs.parameters())], cotangents)
        except Exception:
            return False
        if not outputs:
            return False
        mine = mine.to(DEVICE)
        my_inputs = place(arguments, DEVICE)
        results = differentiable_in(
            in_mode(functools.partial(_call, mine), self.case.mode)(*my_inputs)
        )
        require_same_form(results, outputs)
        actual = gradients_of(
            results, [my_inputs, list(mine.parameters())], on_device_of(results, cotangents)
        )

        def exact() -> Any:
            wide_inputs = widened(arguments)
            own = copy.deepcopy(wide).double()
            again = differentiable_in(_call(own, *wide_inputs))
            wide_cotangents = [c.to(o.dtype) for c, o in zip(cotangents, again, strict=True)]
            return gradients_of(again, [wide_inputs, list(own.parameters())], wide_cotangents)

        self._compare(actual, expected, direction, attempt(exact))
        return True

    def _compare(
        self, actual: Any, expected: Any, direction: Direction, exact: Callable[[], Any]
    ) -> None:
        reference = None if self.case.name in _DRAWING else exact
        try:
            direction.passed_by(compare(actual, expected, self.allowed, reference))
        except Mismatch:
            if self.case.name not in _DRAWING:
                raise
            check_form(None, list(tensors_in(expected)), list(tensors_in(actual)))
            direction.free += 1

    def _module(self, sample: Any, training: bool) -> torch.nn.Module:
        arguments = sample.constructor_input
        samples.seed_for(self.case.name)
        module = self.info.module_cls(*arguments.args, **arguments.kwargs)
        module = module.to(self.case.torch_dtype).train(training)
        if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
            # A lazy module draws its parameters when it is first called: both devices get the same draw.
            arguments = (sample.forward_input.args, sample.forward_input.kwargs)
            with torch.no_grad():
                _call(module, *place(arguments, _CPU))
        return module


def _call(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return module(*args, **kwargs)


def _result(module: torch.nn.Module, outputs: Any) -> list[Any]:
    return [outputs, dict(module.named_buffers())]
