"""Indices that are still on the CPU: ``x[torch.randperm(n)]``.

In: a functional ATen graph. Out: the same graph, in which indices are where the tensor is that they select from.
Forbidden: touching other operands, which have to be there already.

Torch lets a tensor on a device be indexed by tensors of the CPU, and copies them.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten
_INDEXING = (
    _aten.index.Tensor,
    _aten._unsafe_index.Tensor,
    _aten.index_put.default,
    _aten._unsafe_index_put.default,
)


def move_indices(module: torch.fx.GraphModule) -> None:
    """Copy indices to the device of the indexed tensor."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target not in _INDEXING or node.args[0].meta["val"].device.type != "vk":
            continue
        device = node.args[0].meta["val"].device
        indices = [_moved(module, node, index, device) for index in node.args[1]]
        if indices != list(node.args[1]):
            node.update_arg(1, indices)
            changed = True
    if changed:
        module.recompile()


def _moved(
    module: torch.fx.GraphModule, user: torch.fx.Node, index: Any, device: torch.device
) -> Any:
    if index is None or index.meta["val"].device.type != "cpu":
        return index
    value = index.meta["val"]
    with value.fake_mode:
        example = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    with module.graph.inserting_before(user):
        copy = module.graph.call_function(torch.ops.prims.device_put.default, (index, device))
    copy.meta["val"] = example
    return copy
