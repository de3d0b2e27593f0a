"""Softmax, normalisations and cross-entropy: reductions along rows or channels, forward and with the backward pass.

In: the scale. Out: cases. Forbidden: matrix products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from figures.case import Case, Work, forward, forward_and_backward, integers, normal


def cases(full: bool) -> list[Case]:
    """Rows of 1024 (and images of 64 channels), 64 M floats in all on a GPU, 256 K on a software rasteriser."""
    rows, columns = (65536, 1024) if full else (256, 1024)
    images = (128, 64, 56, 56) if full else (8, 16, 16, 16)
    tokens, vocabulary = (8192, 32768) if full else (128, 2048)

    def plain() -> list[torch.Tensor]:
        return [normal(rows, columns, seed=1)]

    def scaled() -> list[torch.Tensor]:
        return [normal(rows, columns, seed=1), 1 + 0.1 * normal(columns, seed=2)]

    def shifted() -> list[torch.Tensor]:
        return [*scaled(), normal(columns, seed=3)]

    def channels() -> list[torch.Tensor]:
        return [
            normal(*images, seed=1),
            1 + 0.1 * normal(images[1], seed=2),
            normal(images[1], seed=3),
        ]

    def classified() -> list[torch.Tensor]:
        return [normal(tokens, vocabulary, seed=1), integers(vocabulary, tokens, seed=2)]

    subjects: list[tuple[str, Callable[..., torch.Tensor], Callable[[], list[torch.Tensor]]]] = [
        (f"softmax {rows}x{columns}", _softmax, plain),
        (f"layer norm {rows}x{columns}", _layer_norm, shifted),
        (f"RMS norm {rows}x{columns}", _rms_norm, scaled),
        (f"batch norm {'x'.join(map(str, images))}", _batch_norm, channels),
        (f"cross-entropy {tokens}x{vocabulary}", _cross_entropy, classified),
    ]
    found = []
    for name, function, make in subjects:
        count = make()[0].numel()
        reduced_to_a_number = function is _cross_entropy
        # Forward: read x, write y. Backward: read x (or y) and dy, write dx.
        once = 4 * count if reduced_to_a_number else 8 * count
        back = 8 * count if reduced_to_a_number else 12 * count
        found.append(Case("norm", name, forward(function, make), Work(nbytes=once), 1e-5))
        found.append(
            Case(
                "norm",
                f"{name}, forward and backward",
                forward_and_backward(function, make),
                Work(nbytes=once + back),
                2e-4,
            )
        )
    return found


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, bias)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps=1e-6)


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(x, target)
