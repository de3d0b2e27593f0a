"""Pointwise chains: one pass over memory if they are fused.

In: the scale. Out: cases. Forbidden: anything but elementwise operators.
"""

from __future__ import annotations

import torch

from figures.case import Case, Work, forward, forward_and_backward, normal


def cases(full: bool) -> list[Case]:
    """64 M floats on a GPU, 1 M on a software rasteriser."""
    count = (64 if full else 1) * 2**20
    label = f"{count >> 20}M floats"

    def one() -> list[torch.Tensor]:
        return [normal(count, seed=1)]

    def two() -> list[torch.Tensor]:
        return [normal(count, seed=1), normal(count, seed=2)]

    def matrix() -> list[torch.Tensor]:
        side = int(count**0.5)
        return [normal(side, side, seed=1), normal(side, side, seed=2)]

    return [
        Case("pointwise", f"a + b, {label}", forward(_add, two), Work(nbytes=12 * count), 1e-6),
        Case(
            "pointwise",
            f"4 operators (multiply, add, relu, silu), {label}",
            forward(_four, two),
            Work(nbytes=12 * count),
            1e-6,
        ),
        Case(
            "pointwise",
            f"10 operators (tanh GELU written out), {label}",
            forward(_gelu, one),
            Work(nbytes=8 * count),
            1e-6,
        ),
        Case(
            "pointwise",
            f"the same, forward and backward, {label}",
            forward_and_backward(_gelu, one),
            Work(nbytes=20 * count),
            1e-5,
        ),
        Case("pointwise", f"GELU, {label}", forward(_one_gelu, one), Work(nbytes=8 * count), 1e-6),
        Case(
            "pointwise",
            f"a + b transposed, {label}",
            forward(_transposed, matrix),
            Work(nbytes=12 * count),
            1e-6,
        ),
    ]


def _add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


def _four(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu((a * 1.5 + 0.25).relu()) * b


def _gelu(x: torch.Tensor) -> torch.Tensor:
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + torch.tanh(inner)) * 1.5 - 0.25


def _one_gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


def _transposed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b.t()
