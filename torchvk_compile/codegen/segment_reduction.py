"""Reductions over runs of consecutive rows whose ends are known only to the device.

In: rows, where each run starts, which rows to take. Out: one row per run. Forbidden: knowing which operator asks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.dtypes import (
    compute_dtype,
    compute_type,
    literal,
    storage_type,
    to_compute,
    to_storage,
)
from torchvk_compile.codegen.launch import Launch, Shell, contiguous_input

_WORKGROUP = 256


@dataclasses.dataclass(frozen=True)
class SegmentReduction:
    """What happens to the rows of a run.

    Attributes:
        reduce: sum, prod, max, min, argmax (the source row of the maximum) or count.
        mean: divide the result by the number of rows.
        initial: what the reduction starts from.
        empty: the result of a run without rows.
    """

    reduce: str
    mean: bool = False
    initial: float = 0.0
    empty: float = 0.0


def reduce_segments(
    reduction: SegmentReduction,
    source: Any,
    offsets: Any,
    *,
    segments: sympy.Expr,
    indices: Any = None,
    weights: Any = None,
    padding: int = -1,
    result_dtype: torch.dtype | None = None,
) -> ir.TensorBox:
    """Reduce runs of rows.

    Args:
        source: (batch, rows, row size), or with `indices` (source rows, row size).
        offsets: (batch, segments) first rows, or (batch, segments + 1) with the end of the last run.
        segments: number of runs per batch.
        indices: (rows,) which rows of the source make up the runs; the batch is 1.
        weights: (rows,) factors of the rows.
        padding: an index whose rows are left out; -1 for none.
        result_dtype: integer dtype of argmax and count.

    Returns:
        (batch, segments, row size); (segments, 1) for count.
    """
    dtype = source.get_dtype()
    register = compute_dtype(dtype)
    counted = reduction.reduce in ("argmax", "count")
    inputs = {"source": contiguous_input(source), "offsets": contiguous_input(offsets)}
    batch, offset_count = inputs["offsets"].get_size()
    row_size: sympy.Expr = (
        sympy.Integer(1) if reduction.reduce == "count" else source.get_size()[-1]
    )
    sizes = {
        "batch_count": batch,
        "segment_count": segments,
        "offset_count": offset_count,
        "row_size": row_size,
    }
    if indices is not None:
        inputs["indices"] = contiguous_input(indices)
        sizes["row_count"] = indices.get_size()[0]
        sizes["source_rows"] = source.get_size()[0]
        if padding >= 0:
            sizes["padding"] = sympy.Integer(padding)
    else:
        sizes["row_count"] = source.get_size()[-2]
    if weights is not None:
        inputs["weights"] = contiguous_input(weights)
    weight_dtype = weights.get_dtype() if weights is not None else dtype
    shell = Shell(
        template="segments.slang.j2",
        workgroup_size=_WORKGROUP,
        modules=("torchvk_memory", "torchvk_math", "torchvk_assert"),
        values={
            "reduce": reduction.reduce,
            "mean": reduction.mean,
            "gathered": indices is not None,
            "weighted": weights is not None,
            "padded": padding >= 0,
            "scalar": compute_type(register),
            "storage": storage_type(dtype),
            "value": to_compute(dtype, "stored"),
            "weight_storage": storage_type(weight_dtype),
            "weight": to_compute(weight_dtype, "stored_weight"),
            "initial": literal(reduction.initial, register),
            "empty": literal(reduction.empty, register),
            "result": to_storage(dtype, "result"),
            "output": storage_type(result_dtype or dtype),
        },
    )
    return Launch.create(
        source.get_device(),
        result_dtype if counted else dtype,
        [batch, segments, row_size],
        shell,
        inputs,
        sizes,
        CeilDiv(batch * segments * row_size, sympy.Integer(_WORKGROUP)),
        {"out_of_range": "index out of range"} if indices is not None else None,
    )
