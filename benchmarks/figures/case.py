"""What is measured: a case builds the same program for every side and for the float64 reference.

In: tensors made on the CPU from fixed seeds. Out: programs, callables without arguments that return tensors.
Forbidden: timing, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Program = Callable[[], Any]
"""Runs once and returns the tensors that are checked. Does not wait for the device."""


@dataclass(frozen=True)
class Place:
    """Where and how a program runs.

    Attributes:
        device: of its tensors.
        ready: makes a function of tensors ready to run, by compiling it or leaving it.
        wide: whether floating-point tensors are widened to float64 (the reference).
        compiled: whether `ready` compiles.
    """

    device: torch.device
    ready: Callable[[Callable[..., Any]], Callable[..., Any]]
    wide: bool = False
    compiled: bool = False

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The CPU tensor at this place."""
        if self.wide and tensor.is_floating_point():
            tensor = tensor.double()
        return tensor.to(self.device)


@dataclass(frozen=True)
class Work:
    """What one run has to do at least: floating-point operations, or bytes to read and write."""

    flops: float = 0.0
    nbytes: float = 0.0


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        group: the subject.
        name: what is computed, with its sizes.
        build: makes the program for a place.
        work: what one run takes at least; rates follow from it.
        tolerance: of max |result - reference| / max |reference|, over every output.
        precision: of `torch.set_float32_matmul_precision`, while building and running.
        replayable: whether a CUDA graph of the program takes part: small kernels would measure the host otherwise.
        checked_runs: how many runs are compared with the reference; programs with state go on from run to run.
    """

    group: str
    name: str
    build: Callable[[Place], Program]
    work: Work
    tolerance: float
    precision: str = "highest"
    replayable: bool = False
    checked_runs: int = 1


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Standard normal numbers, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def integers(bound: int, *shape: int, seed: int) -> torch.Tensor:
    """Integers from 0 to `bound` - 1, on the CPU, int64."""
    return torch.randint(bound, shape, generator=torch.Generator().manual_seed(seed))


def forward(
    function: Callable[..., Any], make: Callable[[], Sequence[torch.Tensor]]
) -> Callable[[Place], Program]:
    """Builds programs that call `function` on the tensors of `make`, without gradients."""

    def build(place: Place) -> Program:
        inputs = [place.put(tensor) for tensor in make()]
        ready = place.ready(function)

        def run() -> Any:
            with torch.no_grad():
                return ready(*inputs)

        return run

    return build


def forward_and_backward(
    function: Callable[..., torch.Tensor], make: Callable[[], Sequence[torch.Tensor]]
) -> Callable[[Place], Program]:
    """Builds programs that also compute the gradients of every floating-point tensor, for a fixed output gradient."""

    def build(place: Place) -> Program:
        inputs = [place.put(tensor) for tensor in make()]
        leaves = [t.requires_grad_() for t in inputs if t.is_floating_point()]
        ready = place.ready(function)
        with torch.no_grad():
            shape, dtype = function(*inputs).shape, inputs[0].dtype
        gradient = (
            torch.ones(shape, device=place.device, dtype=leaves[0].dtype)
            if not shape
            else place.put(normal(*shape, seed=99).to(torch.float32 if place.wide else dtype))
        )

        def run() -> Any:
            result = ready(*inputs)
            return (result.detach(), *torch.autograd.grad(result, leaves, gradient))

        return run

    return build


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in what a program returned."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    return [t.detach() for t in value if t is not None]
