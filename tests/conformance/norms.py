"""Statistics that normalisations return, which torch keeps in float32 on accelerators.

In: results of a normalisation. Out: the same, with statistics in CPU eager's dtype. Forbidden:
touching the first result, or a dtype other than float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_NORMALISATIONS = (
    "native_layer_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "native_group_norm",
)


def narrowed_statistics(name: str, actual: Any, expected: Any) -> Any:
    """Mean and reciprocal deviation as CPU eager returns them.

    CPU eager rounds those of an input in half precision to its dtype; torch's rules for other devices
    (CUDA's kernels, the meta functions) keep them in float32. Of a batch normalisation that uses the
    running statistics, CPU eager returns none, and those rules have one of each channel.
    """
    if name not in _NORMALISATIONS or not isinstance(actual, Sequence):
        return actual
    if len(actual) != len(expected):
        return actual
    statistics = [
        _narrowed(some, other) for some, other in zip(actual[1:], expected[1:], strict=True)
    ]
    return type(expected)([actual[0], *statistics])


def _narrowed(some: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if other.shape == (0,) and some.dim() == 1:
        some = some[:0]
    return some.to(other.dtype) if some.dtype == torch.float32 else some
