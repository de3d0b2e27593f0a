"""`torch.any` of uint8 stays uint8, as in eager; Inductor's lowering makes a bool of every dtype.

In: the arguments of aten.any. Out: Inductor IR. Forbidden: any other reduction.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings, to_dtype

from torchvk_compile.lowering.registry import route


def register_any() -> None:
    """Lower aten.any for vk tensors."""
    for overload in (torch.ops.aten.any.default, torch.ops.aten.any.dim, torch.ops.aten.any.dims):
        if overload in lowerings:
            route(overload, _keeping_uint8(lowerings[overload]))


def _keeping_uint8(lower_any: Any) -> Any:
    def lower(x: ir.TensorBox, *args: Any, **kwargs: Any) -> ir.TensorBox:
        result = lower_any(x, *args, **kwargs)
        return to_dtype(result, torch.uint8) if x.get_dtype() is torch.uint8 else result

    return lower
