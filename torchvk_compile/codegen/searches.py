"""Binary searches of a kernel: bucketize and searchsorted.

In: values, and a sorted buffer to look them up in. Out: their places. Forbidden: knowing who asks.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable
from torch._inductor.virtualized import V

from torchvk_compile.codegen.dtypes import (
    compute_dtype,
    compute_type,
    conversion,
    is_integer,
    storage_type,
)

_KINDS = {
    torch.bool: "Truth",
    torch.float16: "Half",
    torch.bfloat16: "Bfloat",
    torch.float32: "Single",
    torch.float64: "Double",
}


class SearchCodegen:
    """The part of `SlangKernel` that knows `torchvk_search.slang`."""

    def bucketize(
        self,
        values: CSEVariable,
        boundaries: tuple[str, sympy.Expr, sympy.Expr, sympy.Expr],
        boundary_indices: Any,
        indexing_dtype: torch.dtype,
        right: bool,
        sorter: tuple[str, sympy.Expr] | None = None,
        sorter_indices: Any = None,
    ) -> CSEVariable:
        """How many of a row of sorted elements come before each value.

        Args:
            boundaries: buffer, elements of a row, elements of the buffer, stride within a row.
            boundary_indices: where the row starts.
            right: equal elements count, too.
            sorter, sorter_indices: the same for the positions that order the row, if it is not in order itself.
        """
        kernel: Any = self
        for module in ("torchvk_search", "torchvk_memory"):
            kernel.require(module)
        name, size, _, stride = boundaries
        dtype = V.graph.get_dtype(name)
        kind = f"Whole<{storage_type(dtype)}>" if is_integer(dtype) else _KINDS[dtype]
        assert values.dtype is not None
        value, needed = conversion(str(values), values.dtype, compute_dtype(dtype))
        if needed is not None:
            kernel.require(needed)
        arguments = [kernel.args.input(name), str(boundary_indices), size, stride, value]
        if sorter is not None:
            arguments += [kernel.args.input(sorter[0]), str(sorter_indices), sorter[1]]
        text = ", ".join(
            kernel.index_to_str(a) if isinstance(a, sympy.Expr) else a for a in arguments
        )
        call = f"searchSorted<{kind}, {'true' if right else 'false'}>({text})"
        return kernel.cse.generate(
            kernel.compute, f"{compute_type(indexing_dtype)}({call})", dtype=indexing_dtype
        )
