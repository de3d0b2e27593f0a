"""Entries of optim_db: parameters and state after a few steps, against CPU eager.

In: a case. Out: its result. Forbidden: giving the two devices different gradients.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

from . import samples
from .cases import Case, entries
from .comparison import compare
from .execution import DEVICE, Limits, in_mode
from .placement import place, tensors_in
from .records import Direction, Result
from .tolerances import NOTHING_MORE
from .trials import Attempts, ProcessPoisoned

_CPU = torch.device("cpu")
_STEPS = 3
_SHAPES = ((4, 3), (3,), (2, 3, 5))
_MATRICES = ((4, 3), (3, 5))
"""Muon takes parameters with two dimensions only."""


def run(case: Case, limits: Limits) -> Result:
    """Run a case of optim_db.

    Raises:
        ProcessPoisoned: the case's result is in it, but no other case can run in this process.
    """
    started = time.monotonic()
    info = entries("optimizer")[case.name]
    attempts = Attempts()
    samples.seed_for(case.name)
    variants = [
        (sample, flags)
        for sample in info.optim_inputs_func(device="cpu")
        for flags in _implementations(info)
    ]
    for position, (sample, flags) in samples.spread(variants, 2 * limits.forward):
        attempts.attempt(
            f"sample {position} {sample.desc} {samples.summary(flags)}",
            functools.partial(_run_sample, case, info, {**sample.kwargs, **flags}),
        )
    result = Result(case, attempts.outcome(), None, time.monotonic() - started)
    if attempts.poisoned:
        raise ProcessPoisoned(result)
    return result


def _implementations(info: Any) -> list[dict[str, bool]]:
    flags: list[dict[str, bool]] = [{}]
    if "foreach" in info.supported_impls:
        flags.append({"foreach": True})
    return flags


def _run_sample(case: Case, info: Any, kwargs: dict[str, Any], direction: Direction) -> bool:
    try:
        expected = _after_steps(info, kwargs, _CPU, "eager", torch.float32)
    except Exception:
        return False
    actual = _after_steps(info, kwargs, DEVICE, case.mode, torch.float32)

    def exact() -> Any:
        return _after_steps(info, kwargs, _CPU, "eager", torch.float64)

    direction.passed_by(compare(actual, expected, NOTHING_MORE, exact))
    return True


def _after_steps(
    info: Any, kwargs: dict[str, Any], device: torch.device, mode: str, dtype: torch.dtype
) -> list[Any]:
    """Parameters and optimizer state after `_STEPS` steps with fixed gradients."""
    generator = torch.Generator().manual_seed(11)

    def drawn(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    shapes = _MATRICES if info.optim_cls.__name__ == "Muon" else _SHAPES
    parameters = [torch.nn.Parameter(drawn(shape).to(device)) for shape in shapes]
    optimizer = info.optim_cls(parameters, **place(kwargs, device))
    target = [drawn(shape).to(device) for shape in shapes]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.stack(
            [((p - t) ** 2).sum() for p, t in zip(parameters, target, strict=True)]
        ).sum()
        loss.backward()
        return loss

    step = in_mode(optimizer.step, mode)
    for _ in range(_STEPS):
        if not info.step_requires_closure:
            for parameter, shape in zip(parameters, shapes, strict=True):
                gradient = drawn(shape).to(device)
                sparse = info.only_supports_sparse_grads
                parameter.grad = gradient.to_sparse() if sparse else gradient
        step(closure) if info.step_requires_closure else step()
    state = [
        value.detach().cpu()
        for parameter in parameters
        for entry in optimizer.state[parameter].values()
        for value in tensors_in(_stacked(entry))
    ]
    return [[parameter.detach().cpu() for parameter in parameters], state]


def _stacked(entry: Any) -> Any:
    """An entry of the state, the history that LBFGS keeps of a value as one tensor."""
    if not isinstance(entry, list):
        return entry
    steps = list(tensors_in(entry))
    return torch.stack(steps) if steps else steps
