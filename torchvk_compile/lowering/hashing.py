"""The hash of a tensor's elements: hash_tensor.

In: ATen hashes of vk tensors. Out: a reduction of the elements' bits. Forbidden: hashes that depend on the order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings, to_dtype, to_dtype_bitcast

from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten
_XOR_SUM = 0


def register_hashing() -> None:
    """Add the lowering of this file to Inductor's table, for vk tensors."""
    route(_aten.hash_tensor.default, _hash)


def _hash(
    x: ir.TensorBox, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = _XOR_SUM
) -> ir.TensorBox:
    """The exclusive or of the elements, each as 64 bits: of its value as float64, or as int64."""
    if mode != _XOR_SUM:
        raise UnsupportedOperatorError("aten.hash_tensor.default", reason=f"mode {mode}")
    wide = torch.float64 if x.get_dtype().is_floating_point else torch.int64
    bits = to_dtype_bitcast(to_dtype(x, wide), torch.int64)
    combined = lowerings[torch.ops.prims.xor_sum](bits, list(dim) or None, keepdims=keepdim)
    return to_dtype_bitcast(combined, torch.uint64)
