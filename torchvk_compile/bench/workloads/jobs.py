"""The pieces of work that are timed: an addition, a copy, a matrix product, a training step.

In: a case (plain data, so that it can be sent to another process), a device, how to compile. Out: a `Job`.
Forbidden: importing anything outside of this package but torch; branches on who competes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .models import random_batch
from .training import Compile, Training, fresh

_CHECKED_ROWS = 64


@dataclass
class Job:
    """Some work, ready to be done again and again.

    Attributes:
        step: one call; may return before the device is done.
        check: compares the work's result with the CPU's; plain data, ``error`` or ``losses``.
        moved_bytes: least number of bytes a call has to move.
        operations: additions and multiplications of a call, 0 where memory is what counts.
    """

    step: Callable[[], Any]
    check: Callable[[], dict[str, Any]]
    moved_bytes: int = 0
    operations: int = 0


def build(case: Mapping[str, Any], device: str, compile: Compile) -> Job:
    """The job of a case on a device.

    Args:
        case: ``workload`` is add, copy (both with ``n``), matmul (``n``, ``dtype``, ``layout``) or train.
        device: a torch device string.
        compile: makes a function fast; the identity for eager ways.
    """
    builders = {"add": _addition, "copy": _copy, "matmul": _matrix_product, "train": _training}
    return builders[case["workload"]](case, device, compile)


def _addition(case: Mapping[str, Any], device: str, compile: Compile) -> Job:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(case["n"], generator=generator) for _ in range(2))

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    run = compile(fresh(add))
    there = (x.to(device), y.to(device))
    return Job(
        step=lambda: run(*there),
        check=lambda: {"error": _relative_error(run(*there).cpu(), x.double() + y.double())},
        moved_bytes=3 * 4 * case["n"],
    )


def _copy(case: Mapping[str, Any], device: str, compile: Compile) -> Job:
    x = torch.randn(case["n"], generator=torch.Generator().manual_seed(0))
    there = x.to(device)
    return Job(
        step=there.clone,
        check=lambda: {"error": float((there.clone().cpu() != x).sum())},
        moved_bytes=2 * 4 * case["n"],
    )


def _matrix_product(case: Mapping[str, Any], device: str, compile: Compile) -> Job:
    n, dtype = case["n"], getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(n)
    a, b = (torch.randn(n, n, generator=generator).to(dtype) for _ in range(2))

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    def laid_out(x: torch.Tensor, letter: str) -> torch.Tensor:
        there = x.to(device)
        return there if letter == "N" else there.t().contiguous().t()

    run = compile(fresh(multiply))
    operands = tuple(laid_out(x, letter) for x, letter in zip((a, b), case["layout"]))

    def check() -> dict[str, Any]:
        rows = torch.randperm(n, generator=generator)[:_CHECKED_ROWS]
        exact = a[rows].double() @ b.double()
        return {"error": _relative_error(run(*operands).cpu()[rows], exact)}

    return Job(
        step=lambda: run(*operands),
        check=check,
        moved_bytes=3 * n * n * dtype.itemsize,
        operations=2 * n**3,
    )


def _relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest difference as a share of the largest exact element."""
    return float((found.double() - exact).abs().max() / exact.abs().max())


def _training(case: Mapping[str, Any], device: str, compile: Compile) -> Job:
    training = Training(case, device, compile)
    inputs, targets = (tensor.to(device) for tensor in random_batch(case))
    losses = [float(training.step(inputs, targets).cpu()) for _ in range(case.get("steps", 3))]
    return Job(
        step=lambda: training.step(inputs, targets),
        check=lambda: {"losses": losses},
    )
