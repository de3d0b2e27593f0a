"""Scaled dot-product attention, causal, half precision.

In: the scale. Out: cases. Forbidden: projections (the training steps have them).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from figures.case import Case, Work, forward, forward_and_backward, normal


def cases(full: bool) -> list[Case]:
    """8 x 16 heads of 2048 x 64 on a GPU, 1 x 2 of 128 x 32 on a software rasteriser."""
    shape = (8, 16, 2048, 64) if full else (1, 2, 128, 32)

    def make() -> list[torch.Tensor]:
        return [normal(*shape, seed=seed, dtype=torch.float16) for seed in (1, 2, 3)]

    batch, heads, length, width = shape
    # Two products over the lower triangle forward, five backward.
    once = 2 * 2.0 * batch * heads * length * length * width / 2
    name = f"float16 causal {'x'.join(map(str, shape))}"
    return [
        Case("attention", name, forward(_attend, make), Work(flops=once), 5e-3),
        Case(
            "attention",
            f"{name}, forward and backward",
            forward_and_backward(_attend, make),
            Work(flops=3.5 * once),
            1e-2,
        ),
    ]


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
