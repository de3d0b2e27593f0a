"""How the shells of convolutions read a tensor.

In: a buffer and the accumulator's dtype. Out: Slang texts. Forbidden: knowing what is computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from torchvk_compile.codegen.dtypes import compute_type, storage_type, to_compute
from torchvk_compile.codegen.layout import LANES


def operand_text(
    kernel: Any, name: str, node: ir.IRNode, accumulator: torch.dtype
) -> dict[str, Any]:
    """Pointer, types, origin, batch and channel strides of a tensor (N, C, *spatial).

    Args:
        kernel: the kernel that takes the tensor; has `args` and `extent`.
        name: prefix of arguments that carry dynamic strides.
        node: the tensor.
        accumulator: what its elements are converted to.

    Returns:
        Texts under "pointer", "storage", "origin", "batch_stride", "channel_stride"; "scalar" and "vector" convert
        one or `LANES` elements that are called ``stored``.
    """
    layout, dtype = node.get_layout(), node.get_dtype()
    unit = V.graph.sizevars.statically_known_equals(layout.stride[1], 1)
    scalar, vector = conversions(dtype, accumulator)
    return {
        "pointer": kernel.args.input(node.get_name()),
        "storage": storage_type(dtype),
        "scalar": scalar,
        "vector": vector,
        "origin": kernel.extent(f"{name}_origin", layout.offset),
        "batch_stride": kernel.extent(f"{name}_batch", layout.stride[0]),
        "channel_stride": "1" if unit else kernel.extent(f"{name}_channel", layout.stride[1]),
    }


def conversions(dtype: torch.dtype, accumulator: torch.dtype) -> tuple[str, str]:
    """Slang expressions that turn ``stored``, one element or `LANES` of them, into the accumulator's type."""
    scalar = to_compute(dtype, "stored")
    if dtype is torch.float16:
        return scalar, "halfToFloat(stored)"
    if dtype is torch.bfloat16:
        return scalar, "bfloatToFloat(stored)"
    if dtype == accumulator:
        return scalar, "stored"
    target = compute_type(accumulator)
    return f"{target}({scalar})", f"vector<{target}, {LANES}>(stored)"
