"""Lowering an operator as what it is made of, written as a function of torch tensors.

In: an ATen operator and a function with its arguments that calls only operators with lowerings. Out: an entry in
Inductor's table for vk tensors. Forbidden: any change for other devices, or for Inductor's table of decompositions,
which all devices share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V
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
        args, kwargs: its arguments, tensors as Inductor's IR, sizes that vary as expressions.

    Returns:
        Its results as Inductor's IR.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs), is_leaf=lambda x: isinstance(x, ir.IRNode))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, ir.IRNode) or _varies(leaf)]
    given = [leaves[i] for i in positions]
    for value in given:
        if isinstance(value, ir.IRNode):
            value.realize()

    def of_values(*own: Any) -> Any:
        values = list(leaves)
        for position, value in zip(positions, own, strict=True):
            values[position] = value
        inner_args, inner_kwargs = pytree.tree_unflatten(values, spec)
        return function(*inner_args, **inner_kwargs)

    with V.graph.fake_mode:
        values = [_size(v) if _varies(v) else ir.ir_node_to_tensor(v) for v in given]
        graph = torch_compat.traced(
            torch.func.functionalize(of_values), values, torch_compat.decompositions()
        )
    prefix = f"decomposed{next(_names)}"
    for node in graph.graph.nodes:
        # Inductor knows the nodes of the whole graph by name.
        node._rename(f"{prefix}_{node.name}")
    return _run(graph.graph, given)


def _run(graph: torch.fx.Graph, given: Sequence[Any]) -> Any:
    """Lower a graph's nodes as part of the current one."""
    output = graph.output_node()
    results = output.args[0]
    # Inductor gives a graph's outputs the strides they were traced with. These are on their way only.
    graph.erase_node(output)
    inputs, values = iter(given), V.graph.env
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        else:
            with V.graph.set_current_node(node):
                values[node] = V.graph.run_node(node)
    return torch.fx.map_arg(results, lambda node: values[node])


def _varies(leaf: Any) -> bool:
    return isinstance(leaf, sympy.Expr) and not leaf.is_number


def _size(expression: sympy.Expr) -> torch.SymInt:
    sizevars = V.graph.sizevars
    hint = sizevars.optimization_hint(expression)
    return sizevars.shape_env.create_symintnode(expression, hint=hint)
