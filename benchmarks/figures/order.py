"""Order, running sums, and writes that meet in one place.

In: the scale. Out: cases. Forbidden: results whose choice is free (the order of ties).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from figures.case import Case, Work, forward, forward_and_backward, integers, normal

_KEPT = 10


def cases(full: bool) -> list[Case]:
    """64 M floats on a GPU, 4 M on a software rasteriser; sorts of a quarter of that."""
    rows, columns = 64 * 1024 if full else 4096, 1024
    count = rows * columns
    sorted_count = count // 4
    targets, width = 1000, 64
    writes = targets * (1000 if full else 50)
    images = (128 if full else 32, 64, 32, 32)
    pixels = images[0] * images[1] * images[2] * images[3]

    def matrix() -> list[torch.Tensor]:
        return [normal(rows, columns, seed=1)]

    def row() -> list[torch.Tensor]:
        return [normal(sorted_count, seed=1)]

    def scattered() -> list[torch.Tensor]:
        return [
            normal(targets, width, seed=1),
            integers(targets, writes, width, seed=2),
            normal(writes, width, seed=3),
        ]

    def tokens() -> list[torch.Tensor]:
        return [normal(targets, width, seed=1), integers(targets, writes, seed=2)]

    def pictures() -> list[torch.Tensor]:
        return [normal(*images, seed=1)]

    size = f"{rows}x{columns}"
    return [
        Case(
            "order",
            f"cumsum of rows, {size}",
            forward(_cumsum, matrix),
            Work(nbytes=8 * count),
            1e-5,
        ),
        Case(
            "order",
            f"largest {_KEPT} of rows, {size}",
            forward(_largest, matrix),
            Work(nbytes=4 * count),
            1e-6,
        ),
        Case(
            "order",
            f"sort of {sorted_count >> 20}M floats",
            forward(_sorted, row),
            Work(nbytes=8 * sorted_count),
            1e-6,
        ),
        Case(
            "order",
            f"scatter_add of {writes}x{width} into {targets}x{width}",
            forward(_scattered, scattered),
            Work(nbytes=12 * writes * width),
            1e-5,
        ),
        Case(
            "order",
            f"embedding of {writes} tokens, {targets}x{width}, forward and backward",
            forward_and_backward(_embedded, tokens),
            Work(nbytes=12 * writes * width),
            1e-5,
        ),
        Case(
            "order",
            f"max pooling 2x2 of {'x'.join(map(str, images))}, forward and backward",
            forward_and_backward(_pooled, pictures),
            Work(nbytes=4 * pixels * 5 // 2),
            1e-6,
        ),
    ]


def _cumsum(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(1)


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.topk(_KEPT).values


def _sorted(x: torch.Tensor) -> torch.Tensor:
    return x.sort().values


def _scattered(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return x.scatter_add(0, index, source)


def _embedded(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return functional.embedding(index, weight)


def _pooled(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, 2)
