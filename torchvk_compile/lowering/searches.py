"""Binary searches in tables that are views, for torch releases whose own lowering reads them from the buffer's start.

In: aten.searchsorted and aten.bucketize of vk tensors. Out: Inductor's searches in tables of their own memory.
Forbidden: copies where torch follows views by itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import clone, lowerings

from torchvk_compile import torch_compat
from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten


def register_searches() -> None:
    """Put copies before Inductor's searches, where they are needed."""
    if torch_compat.searches_follow_views():
        return
    for overload in (_aten.searchsorted.Tensor, _aten.bucketize.Tensor):
        route(overload, _in_own_memory(overload))


def _in_own_memory(overload: torch._ops.OpOverload) -> Any:
    lowering = lowerings[overload]
    table = 0 if overload is _aten.searchsorted.Tensor else 1

    def search(*args: Any, sorter: ir.TensorBox | None = None, **kwargs: Any) -> ir.TensorBox:
        args = tuple(_plain(arg) if i == table else arg for i, arg in enumerate(args))
        if sorter is not None:
            kwargs["sorter"] = _plain(sorter)
        return lowering(*args, **kwargs)

    return search


def _plain(x: ir.TensorBox) -> ir.TensorBox:
    if not isinstance(x.data, ir.BaseView):
        x.realize()  # a table that is computed has no memory before
        if not x.get_layout().offset:
            return x
    copy = clone(x)
    copy.realize()
    return copy
