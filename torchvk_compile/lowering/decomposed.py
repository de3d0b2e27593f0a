"""Lowering an operator as what it is made of, written as a function of torch tensors.

In: an ATen operator and a function with its arguments that calls only operators with lowerings. Out: an entry in
Inductor's table for vk tensors. Forbidden: any change for other devices, or for Inductor's table of decompositions,
which all devices share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings, process_subgraph_nodes
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torchvk_compile import torch_compat
from torchvk_compile.lowering.registry import route

_names = itertools.count()

Condition = Callable[..., bool]


def route_decomposition(
    overload: torch._ops.OpOverload, function: Callable[..., Any], unless: Condition | None = None
) -> None:
    """Lower `overload` on vk tensors as the operators that `function` calls.

    Args:
        overload: the ATen operator.
        function: takes the operator's arguments as tensors and numbers, returns its results.
        unless: where this holds for the arguments (as Inductor's IR), the lowering there was before stays in use.
    """
    previous = lowerings.get(overload)

    def lowering(*args: Any, **kwargs: Any) -> Any:
        if unless is not None and previous is not None and unless(*args, **kwargs):
            return previous(*args, **kwargs)
        return lower_decomposed(function, *args, **kwargs)

    lowering.__name__ = overload._schema.name
    route(overload, lowering)


def lower_decomposed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Lower the operators that `function` calls, in place of the current node.

    Args:
        function: of torch tensors.
        args, kwargs: its arguments, tensors as Inductor's IR.

    Returns:
        Its results as Inductor's IR.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=lambda x: isinstance(x, ir.IRNode))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, ir.IRNode)]
    nodes = [leaves[i] for i in positions]
    for node in nodes:
        node.realize()

    def of_tensors(*tensors: torch.Tensor) -> Any:
        values = list(leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            values[position] = tensor
        inner_args, inner_kwargs = pytree.tree_unflatten(values, spec)
        return function(*inner_args, **inner_kwargs)

    with V.graph.fake_mode:
        tensors = [ir.ir_node_to_tensor(node) for node in nodes]
        traced = make_fx(
            torch.func.functionalize(of_tensors), decomposition_table=torch_compat.decompositions()
        )
        graph = traced(*tensors)
    prefix = f"decomposed{next(_names)}"
    for node in graph.graph.nodes:
        # Inductor knows the nodes of the whole graph by name.
        node._rename(f"{prefix}_{node.name}")
    return process_subgraph_nodes(graph, nodes)
