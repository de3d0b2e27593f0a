"""3x3 convolutions in float32: forward, and each of the two gradients by itself.

In: the scale. Out: cases. Forbidden: other kernels sizes (the training steps have them).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from figures.case import Case, Work, forward, normal


def cases(full: bool) -> list[Case]:
    """Three layers of a residual network at batch 32; smaller ones on a software rasteriser."""
    layers = ((64, 56), (128, 28), (256, 14)) if full else ((16, 16), (32, 8))
    batch = 32 if full else 4
    return [case for channels, side in layers for case in _layer(batch, channels, side)]


def _layer(batch: int, channels: int, side: int) -> list[Case]:
    def make() -> list[torch.Tensor]:
        return [
            normal(batch, channels, side, side, seed=1),
            normal(channels, channels, 3, 3, seed=2) / (9 * channels) ** 0.5,
        ]

    def make_with_gradient() -> list[torch.Tensor]:
        return [normal(batch, channels, side, side, seed=3), *make()]

    work = Work(flops=2.0 * 9 * channels * channels * batch * side * side)
    name = f"{batch}x{channels}x{side}x{side} to {channels}"
    return [
        Case("conv", f"{name}, forward", forward(_convolve, make), work, 1e-5),
        Case(
            "conv",
            f"{name}, input gradient",
            forward(_gradient(True, False), make_with_gradient),
            work,
            1e-5,
        ),
        Case(
            "conv",
            f"{name}, weight gradient",
            forward(_gradient(False, True), make_with_gradient),
            work,
            1e-5,
        ),
    ]


def _convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x, weight, padding=1)


def _gradient(of_input: bool, of_weight: bool) -> Callable[..., torch.Tensor]:
    wanted = [of_input, of_weight, False]

    def gradient(
        output: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor | None:
        results = torch.ops.aten.convolution_backward(
            output, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted
        )
        return results[0] if of_input else results[1]

    return gradient
