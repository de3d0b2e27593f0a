"""Masks as indices, where the number of elements they select is known from elsewhere.

In: a functional ATen graph. Out: the same graph, with places in the stead of such masks. Forbidden: guessing a number.

The gradient of ``x.index_put((mask,), values)`` for `values` is the gradient of the result under the mask, which is as
long as `values` are. Left as it is, it would read a number back from the device, and with dynamic sizes torch would
name its length by a symbol that the backward graph does not get.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)


def index_by_places(graph: torch.fx.Graph) -> None:
    """Replace the masks of ``x[.., mask, ..]`` on vk tensors by `nonzero_static`, where its size is known."""
    for node in list(graph.find_nodes(op="call_function", target=_aten.index.Tensor)):
        value = node.meta.get("val")
        masks = [
            (position, index)
            for position, index in enumerate(node.args[1])
            if isinstance(index, torch.fx.Node) and index.meta["val"].dtype in _MASKS
        ]
        others = len([index for index in node.args[1] if index is not None]) - len(masks)
        if value is None or value.device.type != "vk" or len(masks) != 1 or others:
            continue
        ((position, mask),) = masks
        length = _known(graph, value.shape[position])
        if length is not None:
            _replace(graph, node, position, mask, length)


def _known(graph: torch.fx.Graph, length: int | torch.SymInt) -> int | torch.fx.Node | None:
    """The number, or the input that holds it; None where only the data knows it."""
    if isinstance(length, int):
        return length
    for node in graph.find_nodes(op="placeholder"):
        given = node.meta.get("val")
        if isinstance(given, torch.SymInt) and given.node.expr == length.node.expr:
            return node
    return None


def _replace(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    position: int,
    mask: torch.fx.Node,
    length: int | torch.fx.Node,
) -> None:
    meta = {k: v for k, v in node.meta.items() if k not in ("tensor_meta", "unbacked_bindings")}

    def call(target: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> torch.fx.Node:
        own = graph.call_function(target, args, kwargs)
        given = pytree.tree_map_only(torch.fx.Node, lambda n: n.meta["val"], (args, kwargs))
        own.meta = {**meta, "val": target(*given[0], **given[1])}
        return own

    with graph.inserting_before(node), mask.meta["val"].fake_mode:
        places = call(_aten.nonzero_static.default, mask, size=length)
        columns = [call(_aten.select.int, places, 1, i) for i in range(mask.meta["val"].dim())]
    node.args = (node.args[0], [None] * position + columns)
    node.meta.pop("unbacked_bindings", None)
