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
    """Mean and reciprocal deviation of an input in half precision, rounded to its dtype.

    CPU eager rounds them itself; torch's rules for other devices (CUDA's kernels, the meta
    functions) keep them in float32.
    """
    if name not in _NORMALISATIONS or not isinstance(actual, Sequence):
        return actual
    if len(actual) != len(expected):
        return actual
    statistics = [
        some.to(other.dtype) if some.dtype == torch.float32 else some
        for some, other in zip(actual[1:], expected[1:], strict=True)
    ]
    return type(expected)([actual[0], *statistics])
