"""Gradients of padding by the edge.

In: ATen's gradients of replication padding. Out: sums over the outputs of a pixel. Forbidden: Slang text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchvk_compile.lowering.decomposed import route_decomposition
from torchvk_compile.lowering.windows import from_zero, whole_numbers, window_sum

aten = torch.ops.aten


def register_padding() -> None:
    """Route the gradients of vk tensors here."""
    for dimensions in (1, 2, 3):
        backward = getattr(aten, f"replication_pad{dimensions}d_backward").default
        route_decomposition(backward, replication_pad_gradient)


def replication_pad_gradient(
    grad: torch.Tensor, x: torch.Tensor, padding: Sequence[int]
) -> torch.Tensor:
    """aten.replication_pad1d_backward, 2d and 3d: outputs beyond an edge go back to it.

    Args:
        grad: gradient of the padded tensor.
        x: what was padded.
        padding: before and after, the last dimension first; below 0 for what was cut off.
    """
    result = grad
    for i in range(len(padding) // 2):
        d = x.dim() - 1 - i
        before, after = padding[2 * i], padding[2 * i + 1]
        source, target = x.shape[d], grad.shape[d]
        pixel = whole_numbers(source, source + target, grad.device)
        first = from_zero(torch.where(pixel == 0, 0, pixel + before))
        last = torch.where(pixel == source - 1, target, pixel + before + 1).clamp_max(target)
        # A single pixel has all outputs, others the padding of one side at most.
        reach = target if isinstance(source, int) and source == 1 else max(before, after, 0) + 1
        result = window_sum(result, d, first, last, reach=reach)
    return result.to(grad.dtype)
