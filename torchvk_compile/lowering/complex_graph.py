"""Operators on complex tensors, written with real ones.

In: a functional ATen graph. Out: the same graph, in which complex values are tensors of pairs looked at as complex
numbers and taken apart again. Forbidden: the formulas (`complex_table` has them); the graph's inputs and outputs
(`complex_edges`).

Inductor generates no code for complex numbers. Every node that has to do with them is traced again by its rule, which
leaves real operators between `view_as_real` and `view_as_complex`; where one operator's result meets the next, both
vanish, and with them the tensor of pairs: only two real values go from one to the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree

from torchvk_compile import torch_compat
from torchvk_compile.lowering import (  # noqa: F401 (their rules)
    complex_arithmetic,
    complex_functions,
    complex_products,
    complex_structure,
    fourier,
)
from torchvk_compile.lowering.complex_table import RULES, is_complex, join, parts
from torchvk_compile.lowering.linalg import (  # noqa: F401 (their rules)
    cholesky,
    eigenvalues,
    lu,
    triangular,
)

_aten = torch.ops.aten

PAIRS_OF = _aten.view_as_real.default
COMPLEX_OF = _aten.view_as_complex.default
_SIZE_OF = _aten.sym_size.int
_LAZY = frozenset({_aten._neg_view.default, _aten.resolve_neg.default, _aten._conj.default})

_CARRIED_OUT = {
    _aten._conj.default: _aten._conj_physical.default,
    _aten._neg_view.default: _aten.neg.default,
}
_ALWAYS = _LAZY | {
    _aten.complex.default,
    _aten.polar.default,
    _aten._fft_r2c.default,
    _aten.linalg_eig.default,
    _aten._linalg_eigvals.default,
}
"""Operators whose rules hold for real arguments too."""


def apply_rules(graph: torch.fx.Graph) -> None:
    """Replace the operators on complex vk tensors that have a rule."""
    nodes = []
    for node in list(graph.nodes):
        if concerns_complex(node):
            if _on_device(node):
                nodes.append(node)
            elif node.target is _aten._conj.default and isinstance(
                node.args[0], (int, float, complex)
            ):
                _replace_by_number(graph, node, node.args[0].conjugate())
            else:
                # The host computes it, eagerly: what the device takes over must not be lazy.
                node.target = _CARRIED_OUT.get(node.target, node.target)
    for node in nodes:
        _move_numbers(graph, node)
        _expand(graph, node)
    if nodes:
        cancel(graph)


def concerns_complex(node: torch.fx.Node) -> bool:
    """Whether a node computes with complex numbers, or with tensors that are lazily conjugated or negative."""
    if node.op != "call_function" or node.target in (PAIRS_OF, COMPLEX_OF, _SIZE_OF):
        return False
    if node.target in _LAZY:
        return True
    values = [node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)]
    return any(is_complex(value) for value in pytree.tree_leaves(values))


def _on_device(node: torch.fx.Node) -> bool:
    values = [node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)]
    return any(
        isinstance(value, torch.Tensor) and value.device.type == "vk"
        for value in pytree.tree_leaves(values)
    )


def without_lazy_bits(value: Any) -> Any:
    """A fake tensor's stand-in that is neither conjugated nor negative: inside a graph a tensor is its value."""
    if not isinstance(value, torch.Tensor) or not (value.is_conj() or value.is_neg()):
        return value
    with value.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )


# Numbers in CPU tensors without dimensions ---------------------------------------------------------------------------


def _move_numbers(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Have the node take its 0-d CPU operands from the device: rules compute with parts of one operand alone."""
    results = [v for v in pytree.tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    device = next((value.device for value in results if value.device.type == "vk"), None)
    if device is None or node.target in (_aten._to_copy.default, _aten.copy_.default):
        return
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() == 0:
            node.replace_input_with(source, _moved(graph, node, source, device))


def _moved(
    graph: torch.fx.Graph, user: torch.fx.Node, number: torch.fx.Node, device: torch.device
) -> torch.fx.Node:
    value = without_lazy_bits(number.meta["val"])

    def move(value: torch.Tensor) -> torch.Tensor:
        values = parts(value) if value.dtype.is_complex else (value,)
        one = torch.ones((), dtype=values[0].dtype, device=device)
        moved = tuple(one * part for part in values)
        return join(moved) if value.dtype.is_complex else moved[0]

    with torch.no_grad(), value.fake_mode:  # type: ignore[attr-defined]
        traced = torch_compat.traced(move, (value,), _table())
    return _inline(graph, traced.graph, user, [number])


def _replace_by_number(graph: torch.fx.Graph, node: torch.fx.Node, number: complex) -> None:
    def replaced(value: Any) -> Any:
        return number if value is node else value

    for user in list(node.users):
        user.args = torch.fx.node.map_aggregate(user.args, replaced)
        user.kwargs = torch.fx.node.map_aggregate(user.kwargs, replaced)
    graph.erase_node(node)


# Rules ---------------------------------------------------------------------------------------------------------------


def _expand(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Put what the node's rule does in the node's place."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)))
    inputs = [without_lazy_bits(source.meta["val"]) for source in sources]

    def call(*values: Any) -> Any:
        given = dict(zip(sources, values, strict=True))
        own = [given[leaf] if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(own, spec)
        return node.target(*args, **kwargs)

    mode = torch_compat.fake_mode_of([*inputs, node.meta["val"]])
    with torch.no_grad(), mode, enable_python_dispatcher():
        traced = torch_compat.traced(call, inputs, _table())
    results = _inline(graph, traced.graph, node, sources)
    if isinstance(results, torch.fx.Node):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def _table() -> dict[Any, Callable[..., Any]]:
    table = torch_compat.decompositions()
    table.update({op: _where_complex(op, table.get(op)) for op in RULES})
    return table


@functools.cache
def _where_complex(
    op: torch._ops.OpOverload, otherwise: Callable[..., Any] | None
) -> Callable[..., Any]:
    function = RULES[op]

    def choose(*args: Any, **kwargs: Any) -> Any:
        if op in _ALWAYS or any(is_complex(leaf) for leaf in pytree.tree_leaves((args, kwargs))):
            return function(*args, **kwargs)
        return NotImplemented if otherwise is None else otherwise(*args, **kwargs)

    return choose


def _inline(
    graph: torch.fx.Graph,
    traced: torch.fx.Graph,
    node: torch.fx.Node,
    sources: Sequence[torch.fx.Node],
) -> Any:
    """Copy a traced graph's nodes before `node`; returns the nodes of its results."""
    given = iter(sources)
    copies: dict[torch.fx.Node, Any] = {}
    with graph.inserting_before(node):
        for own in traced.nodes:
            if own.op == "placeholder":
                copies[own] = next(given)
            elif own.op == "output":
                return torch.fx.map_arg(own.args[0], lambda n: copies[n])
            else:
                copy = copies[own] = graph.node_copy(own, lambda n: copies[n])
                copy.meta = {k: v for k, v in node.meta.items() if k != "tensor_meta"}
                copy.meta["val"] = own.meta.get("val")
    raise AssertionError("a graph without output")


# Between the rules ---------------------------------------------------------------------------------------------------


def cancel(graph: torch.fx.Graph) -> None:
    """Remove pairs that are made only to be taken apart again."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        source = node.args[0] if node.args else None
        if not isinstance(source, torch.fx.Node):
            continue
        made_by = source.target
        if (node.target, made_by) in ((PAIRS_OF, COMPLEX_OF), (COMPLEX_OF, PAIRS_OF)):
            node.replace_all_uses_with(source.args[0])
        elif node.target == _SIZE_OF and made_by == COMPLEX_OF:
            node.args = (source.args[0], node.args[1] % node.args[0].meta["val"].dim())
        elif node.target == _aten.select.int and made_by == torch.ops.torchvk.interleave.default:
            _, dim, which = node.args
            if dim % source.meta["val"].dim() == source.meta["val"].dim() - 1:
                node.replace_all_uses_with(source.args[which])
    graph.eliminate_dead_code()
