"""Statistics that normalisations return, which torch keeps in float32 on accelerators.

In: a call and its results. Out: nothing, or `Mismatch`. Forbidden: another dtype than the input's
or float32.
"""

from __future__ import annotations

from typing import Any

import torch

from .comparison import Mismatch, compare
from .tolerances import Tolerance


def check_statistics(call: Any, expected: Any, actual: Any) -> None:
    """Mean and reciprocal deviation may be float32 for inputs in half precision, as on CUDA.

    CPU eager rounds them to the dtype of the input; torch's rules for other devices do not.
    """
    narrow = [
        some.to(other.dtype) if some.dtype == torch.float32 else some
        for some, other in zip(actual, expected, strict=True)
    ]
    if len(actual) != len(expected):
        raise Mismatch(f"{len(actual)} results, expected {len(expected)}")
    compare(narrow, list(expected), Tolerance(0.0, 0.0))


CHECKS = dict.fromkeys(
    ("native_layer_norm", "native_batch_norm", "_batch_norm_with_update", "native_group_norm"),
    check_statistics,
)
