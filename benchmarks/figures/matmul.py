"""Matrix products: float32 in both precisions of torch, half precision, thin shapes.

In: the scale. Out: cases. Forbidden: fused neighbours (the training steps have them).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from figures.case import Case, Work, forward, normal


def cases(full: bool) -> list[Case]:
    """Squares of 512 to 8192 on a GPU, 128 and 256 on a software rasteriser."""
    squares = (4096, 2048, 1024, 512) if full else (256, 128)
    halves = (4096, 8192, 1024) if full else (256,)
    found = [_square(n, torch.float32) for n in squares]
    for dtype in (torch.float16, torch.bfloat16):
        found += [_square(n, dtype) for n in halves]
    found += [_square(n, torch.float32, "high") for n in squares[:1]]
    found.append(_linear(64, 784, 256))
    found.append(_matvec(4096 if full else 1024))
    return found


def _square(n: int, dtype: torch.dtype, precision: str = "highest") -> Case:
    def make() -> list[torch.Tensor]:
        return [normal(n, n, seed=1, dtype=dtype), normal(n, n, seed=2, dtype=dtype)]

    kind = str(dtype).removeprefix("torch.")
    name = f"{kind} {n}x{n}x{n}" + ("" if precision == "highest" else f', precision "{precision}"')
    exact = dtype is torch.float32
    # "high" admits TensorFloat-32 and the like: 10 mantissa bits. bfloat16 results have 8.
    tolerance = (1e-5 if precision == "highest" else 2e-3) if exact else 5e-3
    return Case(
        "matmul",
        name,
        forward(torch.mm, make),
        Work(flops=2.0 * n**3),
        tolerance,
        precision,
        replayable=True,
    )


def _linear(rows: int, width: int, outputs: int) -> Case:
    def make() -> list[torch.Tensor]:
        return [
            normal(rows, width, seed=1),
            normal(outputs, width, seed=2),
            normal(outputs, seed=3),
        ]

    return Case(
        "matmul",
        f"float32 linear layer {rows}x{width}x{outputs}",
        forward(functional.linear, make),
        Work(flops=2.0 * rows * width * outputs),
        1e-5,
        replayable=True,
    )


def _matvec(n: int) -> Case:
    def make() -> list[torch.Tensor]:
        return [normal(n, n, seed=1), normal(n, seed=2)]

    return Case(
        "matmul",
        f"float32 matrix times vector {n}",
        forward(torch.mv, make),
        Work(nbytes=4.0 * n * n),
        1e-5,
        replayable=True,
    )
