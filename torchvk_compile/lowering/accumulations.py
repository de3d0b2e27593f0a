"""Sums of 16-bit floats, kept in float32 for the rest of their graph.

In: a functional ATen graph. Out: the same graph, in which what sums, means and scans of float16 and bfloat16 come to is
rounded only where it leaves the graph or meets an operator that is not arithmetic. Forbidden: keeping a tensor in
float32 that has more elements than the accumulations it was computed from.

A norm, a mean or a product along a row is used by the forward pass and again by the backward pass. Arithmetic on
16-bit floats is float32 within a kernel, so these values would be rounded only because they go from one kernel to the
next; a gradient that is a difference of such values loses its digits there.

What the rewritten operators hand to others is `NARROW` of a float32 value (`roundings`): 16 bits where it is stored,
and not rounded within a kernel, like all other arithmetic on 16-bit floats. A conversion to 16 bits in the program does
round.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from torchvk_compile.lowering.roundings import CONVERT, HALVES, NARROW, closes_an_operator

_aten = torch.ops.aten

_SUMS = frozenset(
    {
        _aten.sum.default,
        _aten.sum.dim_IntList,
        _aten.mean.default,
        _aten.mean.dim,
        _aten.cumsum.default,
        _aten.cumprod.default,
    }
)
"""Accumulations that take the dtype of their result."""

_MOMENTS = frozenset({_aten.var.correction, _aten.var_mean.correction})

_ARITHMETIC = frozenset(
    {
        _aten.add.Tensor,
        _aten.add.Scalar,
        _aten.sub.Tensor,
        _aten.sub.Scalar,
        _aten.mul.Tensor,
        _aten.mul.Scalar,
        _aten.div.Tensor,
        _aten.div.Scalar,
        _aten.neg.default,
        _aten.reciprocal.default,
        _aten.sqrt.default,
        _aten.rsqrt.default,
        _aten.pow.Tensor_Scalar,
        _aten.exp.default,
        _aten.log.default,
        _aten.where.self,
    }
)
_MOVES = frozenset(
    {
        _aten.alias.default,
        _aten.clone.default,
        _aten.expand.default,
        _aten.gather.default,
        _aten.permute.default,
        _aten.squeeze.default,
        _aten.squeeze.dim,
        _aten.squeeze.dims,
        _aten.unsqueeze.default,
        _aten.view.default,
        torch.ops.prims.rev.default,
    }
)
"""Operators whose results are elements of their first argument; ``expand`` repeats them without memory."""


def keep_accumulations(graph: torch.fx.Graph) -> None:
    """Rewrite the graph's arithmetic on accumulations of 16-bit vk tensors."""
    rewriting = _Rewriting(graph)
    for node in list(graph.nodes):
        rewriting.visit(node)
    graph.eliminate_dead_code()


class _Rewriting:
    """One walk over a graph.

    Attributes:
        elements: of accumulations and what was computed from them, how many elements they have in memory.
        exact: 16-bit nodes, and their values before they were rounded.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.elements: dict[torch.fx.Node, int | torch.SymInt] = {}
        self.exact: dict[torch.fx.Node, torch.fx.Node] = {}

    def visit(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if node.op != "call_function":
            return
        if node.target in _MOMENTS:
            self.elements[node] = 0  # a pair: its members are counted
        elif not _is_float_on_device(value):
            return
        elif node.target in _SUMS:
            self._accumulate(node, value)
        elif node.target is operator.getitem and node.args[0] in self.elements:
            self.elements[node] = value.numel()
        elif node.target is CONVERT:
            self._convert(node, value)
        elif node.target in _MOVES or node.target in _ARITHMETIC:
            self._compute(node, value)

    def _accumulate(self, node: torch.fx.Node, value: torch.Tensor) -> None:
        self.elements[node] = value.numel()
        if value.dtype in HALVES and any(
            user.target in _MOVES or user.target in _ARITHMETIC for user in node.users
        ):
            self._replace(node, node.args, {**node.kwargs, "dtype": torch.float32}, value.numel())

    def _convert(self, node: torch.fx.Node, value: torch.Tensor) -> None:
        (source, _) = node.args
        if source not in self.elements:
            return
        if source in self.exact and value.dtype == torch.float32:
            node.replace_all_uses_with(self.exact[source])
            return
        self.elements[node] = self.elements[source]
        if closes_an_operator(node):
            self.exact[node] = source

    def _compute(self, node: torch.fx.Node, value: torch.Tensor) -> None:
        operands = node.all_input_nodes if node.target in _ARITHMETIC else [node.args[0]]
        counts = [self.elements[operand] for operand in operands if operand in self.elements]
        if not counts:
            return
        count = counts[0]
        if node.target in _ARITHMETIC:
            count = value.numel()
            if not any(statically_known_true(count <= other) for other in counts):
                count = None
        if value.dtype in HALVES and any(operand in self.exact for operand in operands):
            self._replace(node, *self._widened(node, operands), count)
            return
        for operand in operands:
            if operand in self.exact:
                node.replace_input_with(operand, self.exact[operand])
        if count is not None:
            self.elements[node] = count

    def _widened(self, node: torch.fx.Node, operands: list[torch.fx.Node]) -> tuple[Any, Any]:
        """The node's arguments, 16-bit operands in float32."""

        def widen(operand: torch.fx.Node) -> torch.fx.Node:
            value = operand.meta["val"]  # of any kind: divisors may be symbolic numbers
            if operand not in operands or getattr(value, "dtype", None) not in HALVES:
                return operand
            if operand in self.exact:
                return self.exact[operand]
            return self._call(node, CONVERT, (operand, torch.float32), {})

        with self.graph.inserting_before(node):
            return torch.fx.map_arg((node.args, node.kwargs), widen)

    def _replace(
        self, node: torch.fx.Node, args: Any, kwargs: Any, count: int | torch.SymInt | None
    ) -> None:
        """Compute a 16-bit node in float32 and round it; `count` is None where the value is not to be kept."""
        with self.graph.inserting_before(node):
            exact = self._call(node, node.target, args, kwargs)
            narrow = self._call(node, NARROW, (exact,), {"dtype": node.meta["val"].dtype})
        node.replace_all_uses_with(narrow)
        self.graph.erase_node(node)
        if count is not None:
            self.elements[exact] = self.elements[narrow] = count
            self.exact[narrow] = exact

    def _call(self, origin: torch.fx.Node, target: Any, args: Any, kwargs: Any) -> torch.fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta = {k: v for k, v in origin.meta.items() if k != "tensor_meta"}
        own_args, own_kwargs = pytree.tree_map_only(
            torch.fx.Node, lambda n: n.meta["val"], (args, kwargs)
        )
        with origin.meta["val"].fake_mode:
            node.meta["val"] = target(*own_args, **own_kwargs)
        return node


def _is_float_on_device(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.device.type == "vk" and value.is_floating_point()
    )
