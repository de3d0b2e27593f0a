"""Maximum and sum of exponentials of long rows in one pass, as cross-entropy needs them.

In: a functional ATen graph, after differentiation. Out: the same graph; ``amax(x)`` and ``sum(exp(x - amax(x)))`` are
the two results of Inductor's ``prepare_softmax_online``. Forbidden: rows that fit the registers of a workgroup, and
exponentials that something else needs: reading such rows twice costs nothing.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.lowering.graph_check import source_digest

_aten = torch.ops.aten

SHORTEST = 4096
"""Elements of a row, above which one pass is faster."""

_FEWEST = 1024
"""Rows; fewer are split between workgroups, which prepare_softmax_online does not do."""


class OnlineSoftmax(CustomGraphPass):
    """The pass."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        for total in graph.find_nodes(op="call_function", target=_aten.sum.dim_IntList):
            parts = _parts(total)
            if parts is not None and _pays(*parts):
                _replace(graph, total, *parts)

    def uuid(self) -> Any:
        return source_digest()


def pays(profile: Any) -> bool:
    """Whether a second pass over a row costs more than exponentials; caches of CPUs are large."""
    return profile.device_type != "cpu"


def _parts(total: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node] | None:
    """``x`` and ``amax(x)`` of a sum of the exponentials ``exp(x - amax(x))`` along the last dimension."""
    exponential = total.args[0]
    if not _is(exponential, _aten.exp.default) or len(exponential.users) != 1:
        return None
    distance = exponential.args[0]
    if not _is(distance, _aten.sub.Tensor) or distance.kwargs:
        return None
    x, largest = distance.args
    if not _is(largest, _aten.amax.default) or largest.args[0] is not x:
        return None
    rank = x.meta["val"].dim()
    for reduction in (total, largest):
        _, dims, keep = (*reduction.args, False)[:3]
        if len(dims) != 1 or dims[0] not in (-1, rank - 1) or not keep or reduction.kwargs:
            return None
    return x, largest


def _is(node: Any, target: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.target is target


def _pays(x: torch.fx.Node, largest: torch.fx.Node) -> bool:
    value = x.meta["val"]
    length, rows = value.shape[-1], largest.meta["val"].numel()
    return (
        value.device.type == "vk"
        and value.dtype is torch.float32
        and value.stride(-1) == 1
        and isinstance(length, int)
        and isinstance(rows, int)
        and length > SHORTEST
        and rows >= _FEWEST
        and pays(profile_of(value.device.index or 0))
    )


def _replace(
    graph: torch.fx.Graph, total: torch.fx.Node, x: torch.fx.Node, largest: torch.fx.Node
) -> None:
    from torch._inductor.inductor_prims import prepare_softmax_online

    with graph.inserting_before(largest):
        both = graph.call_function(prepare_softmax_online, (x, x.meta["val"].dim() - 1))
        both.meta = {**largest.meta, "val": (largest.meta["val"], total.meta["val"])}
        for position, old in enumerate((largest, total)):
            new = graph.call_function(operator.getitem, (both, position))
            new.meta = dict(old.meta)
            old.replace_all_uses_with(new)
    exponential = total.args[0]
    for node in (total, exponential, largest):
        graph.erase_node(node)
