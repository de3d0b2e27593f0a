"""Graphs whose inputs and outputs are complex, for a compiler that knows real tensors only.

In: a functional ATen graph. Out: the graph with tensors of pairs (`torch.view_as_real`) in the place of complex inputs
and outputs, and what turns a call of the one into a call of the other; or `UnsupportedOperatorError`. Forbidden: rules
for operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchvk_compile import config, torch_compat
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.complex_graph import (
    COMPLEX_OF,
    PAIRS_OF,
    apply_rules,
    cancel,
    concerns_complex,
    without_lazy_bits,
)
from torchvk_compile.lowering.complex_table import COMPLEX_DTYPES, is_complex

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Any]


def compile_with_pairs(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], compile_real: Compile
) -> Any:
    """Compile a graph by a compiler that knows real tensors only.

    Args:
        gm: a functional ATen graph; rewritten in place.
        example_inputs: fake tensors and sizes, as many as it has placeholders.
        compile_real: takes the rewritten graph and its example inputs, returns a callable that takes a list and
            empties it.

    Returns:
        What `compile_real` returns, or a callable around it that takes and returns complex tensors.

    Raises:
        UnsupportedOperatorError: an operator on complex tensors has no rule.
    """
    if not any(_needs_care(node) for node in gm.graph.nodes):
        return compile_real(gm, example_inputs)
    apply_rules(gm.graph)
    _refuse_the_rest(gm.graph)
    edges = _Edges(gm.graph, example_inputs)
    gm.recompile()
    with torch_compat.outputs_are_pairs(edges.complex_outputs):
        compiled = compile_real(gm, edges.example_inputs)
    return edges.around(compiled)


def _needs_care(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and node.op == "placeholder":
        return is_complex(value) or value.is_conj() or value.is_neg()
    return node.target is COMPLEX_OF or concerns_complex(node)


def _refuse_the_rest(graph: torch.fx.Graph) -> None:
    """Raise for an operator without a rule, unless it may run on the CPU."""
    if config.cpu_fallback != "error":
        return
    for node in graph.nodes:
        if concerns_complex(node):
            values = pytree.tree_leaves([s.meta.get("val") for s in (*node.all_input_nodes, node)])
            first = next(value for value in values if is_complex(value))
            raise UnsupportedOperatorError(
                str(node.target),
                dtype=first.dtype,
                shape=tuple(first.shape),
                reason="it has no rule for complex numbers",
            )


class _Edges:
    """The graph's inputs and outputs as pairs.

    A complex input becomes a tensor with one more dimension, of size 2. A 0-d CPU tensor, which graphs take as a
    number, becomes two such numbers.
    """

    def __init__(self, graph: torch.fx.Graph, example_inputs: Sequence[Any]) -> None:
        self.example_inputs: list[Any] = []
        self._takes: list[Callable[[Any, list[Any]], None]] = []
        (output,) = graph.find_nodes(op="output")
        outputs = list(output.args[0])
        self.complex_outputs = [
            i
            for i, node in enumerate(outputs)
            if isinstance(node, torch.fx.Node) and is_complex(node.meta.get("val"))
        ]
        whole = [outputs[i].meta["val"] for i in self.complex_outputs]
        self._written = _written_positions(graph)
        inputs = graph.find_nodes(op="placeholder")
        for node, example in zip(inputs, example_inputs, strict=True):
            self._enter(graph, node, example)
        cancel(graph)
        self._leave(output, whole)
        graph.eliminate_dead_code()

    def _enter(self, graph: torch.fx.Graph, node: torch.fx.Node, example: Any) -> None:
        value = node.meta.get("val")
        if not is_complex(value):
            self.example_inputs.append(without_lazy_bits(example))
            self._takes.append(_take_real if isinstance(value, torch.Tensor) else _take)
            return
        number = value.device.type == "cpu" and value.dim() == 0
        with value.fake_mode:
            pairs = torch.view_as_real(without_lazy_bits(value))
            part = torch.empty((), dtype=pairs.dtype, device="cpu")
        if number:
            self._takes.append(_take_number)
            entries = self._placeholders(graph, node, {"real": part, "imag": part})
        else:
            # Inductor reads a symbol from a size or stride that is just this symbol, not twice the symbol.
            symbols = {d: s for d, s in enumerate(value.stride()) if isinstance(s, torch.SymInt)}
            self._takes.append(_take_pairs(tuple(symbols)))
            strides = {f"stride{d}": stride for d, stride in symbols.items()}
            entries = self._placeholders(graph, node, {**strides, "pairs": pairs})
        body = graph.find_nodes(op="placeholder")[-1].next  # a token may be made before them
        with graph.inserting_before(body):
            whole = entries[-1]
            if number:
                whole = graph.call_function(torch.ops.torchvk.interleave.default, tuple(entries))
                whole.meta["val"] = pairs
            again = graph.call_function(COMPLEX_OF, (whole,))
            again.meta = dict(node.meta)
        node.replace_all_uses_with(again)
        graph.erase_node(node)

    def _placeholders(
        self, graph: torch.fx.Graph, node: torch.fx.Node, examples: dict[str, Any]
    ) -> list[torch.fx.Node]:
        """Inputs in the place of one; a graph's inputs come before all other nodes."""
        made = []
        with graph.inserting_before(node):
            for name, example in examples.items():
                entry = graph.placeholder(f"{node.name}_{name}")
                entry.meta = {**node.meta, "val": example}
                made.append(entry)
        self.example_inputs.extend(examples.values())
        return made

    def _leave(self, output: torch.fx.Node, whole: Sequence[torch.Tensor]) -> None:
        results = list(output.args[0])
        for position, value in zip(self.complex_outputs, whole, strict=True):
            if results[position].target is not COMPLEX_OF:
                source = results[position]
                while source.target is operator.getitem:
                    source = source.args[0]
                raise UnsupportedOperatorError(
                    str(source.target),
                    dtype=value.dtype,
                    shape=tuple(value.shape),
                    reason="its complex result is not made of real parts",
                )
            pairs = results[position].args[0]
            strides = [2 * stride for stride in value.stride()]
            with value.fake_mode:
                pairs.meta["val"] = torch.empty_strided(
                    [*value.shape, 2],
                    [*strides, 1],
                    dtype=pairs.meta["val"].dtype,
                    device=value.device,
                )
            results[position] = pairs
        output.args = (tuple(results),)

    def around(self, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """`compiled` for complex arguments and results."""
        takes, written, complex_outputs = self._takes, self._written, self.complex_outputs

        def run(inputs: list[Any]) -> Any:
            late = []
            for i in written:
                if inputs[i].is_conj() or inputs[i].is_neg():
                    target, inputs[i] = inputs[i], _carried_out(inputs[i])
                    late.append((target, inputs[i]))
            taken: list[Any] = []
            for take, value in zip(takes, inputs, strict=True):
                take(value, taken)
            inputs.clear()
            outputs = list(compiled(taken))
            for target, value in late:
                target.copy_(value)
            for position in complex_outputs:
                outputs[position] = _as_complex(outputs[position])
            return outputs

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def _as_complex(pairs: torch.Tensor) -> torch.Tensor:
    if pairs.numel():
        return torch.view_as_complex(pairs)
    # Without elements the strides mean nothing, but torch checks them.
    return pairs.new_empty(pairs.shape[:-1], dtype=COMPLEX_DTYPES[pairs.dtype])


def _written_positions(graph: torch.fx.Graph) -> list[int]:
    """Positions of the inputs that the graph writes at its end."""
    return [
        position
        for position, node in enumerate(graph.find_nodes(op="placeholder"))
        if any(_writes(user, node) for user in node.users)
    ]


def _writes(user: torch.fx.Node, written: torch.fx.Node) -> bool:
    if user.target is PAIRS_OF:
        return any(_writes(later, user) for later in user.users)
    return user.target is torch.ops.aten.copy_.default and user.args[0] is written


def _take(value: Any, taken: list[Any]) -> None:
    taken.append(value)


def _take_real(value: torch.Tensor, taken: list[Any]) -> None:
    taken.append(_carried_out(value) if value.is_neg() else value)


def _take_pairs(strides: Sequence[int]) -> Callable[[torch.Tensor, list[Any]], None]:
    """Take a tensor's strides in some dimensions, then its pairs."""

    def take(value: torch.Tensor, taken: list[Any]) -> None:
        taken.extend(value.stride(dim) for dim in strides)
        lazy = value.is_conj() or value.is_neg()
        taken.append(torch.view_as_real(_carried_out(value) if lazy else value))

    return take


def _carried_out(value: torch.Tensor) -> torch.Tensor:
    """The tensor with its conjugation or negation carried out, its strides as they were."""
    single = [slice(0, 1) if step == 0 else slice(None) for step in value.stride()]
    source = value[tuple(single)]
    target = torch.empty_strided(
        source.shape, source.stride(), dtype=value.dtype, device=value.device
    )
    return target.copy_(source).as_strided(value.shape, value.stride())


def _take_number(value: torch.Tensor, taken: list[Any]) -> None:
    number = value.item()
    dtype = torch.float64 if value.dtype == torch.complex128 else torch.float32
    taken.extend(torch.tensor(part, dtype=dtype) for part in (number.real, number.imag))
