"""Computation on CPU tensors inside a graph for a vk device: it stays on the CPU, where its tensors live.

In: a functional ATen graph that mixes devices, such as an optimizer step whose step counts are CPU tensors. Out: stages
that alternate between host and device. Forbidden: moving a vk tensor's computation to the CPU.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_leaves

CompileStage = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]


def has_host_work(gm: torch.fx.GraphModule) -> bool:
    """Whether some node of the graph computes a CPU tensor from CPU tensors."""
    return any(node.op == "call_function" and _is_host(node) for node in gm.graph.nodes)


def compile_in_stages(
    gm: torch.fx.GraphModule, compile_device_stage: CompileStage
) -> Callable[[list[Any]], Any]:
    """Split the graph where it changes between host and device, and compile the device stages.

    Returns:
        A callable that takes a list of inputs and empties it, as Inductor's compiled graphs do. Host stages run
        eagerly.
    """
    stages = _stages(gm)
    split = split_module(gm, gm, lambda node: stages.get(node, 0))
    for name, child in list(split.named_children()):
        stage = int(name.removeprefix("submod_"))
        if stage % 2 == 1:
            inputs = [node.meta["val"] for node in child.graph.nodes if node.op == "placeholder"]
            returned_tuple = _return_tuple(child)
            setattr(split, name, _Stage(compile_device_stage(child, inputs), returned_tuple))

    def run(inputs: list[Any]) -> Any:
        taken = list(inputs)
        inputs.clear()
        return split(*taken)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _Stage(torch.nn.Module):
    """A compiled device stage in the place of its graph."""

    def __init__(self, compiled: Callable[[list[Any]], Any], returns_tuple: bool) -> None:
        super().__init__()
        self._compiled = compiled
        self._returns_tuple = returns_tuple

    def forward(self, *inputs: Any) -> Any:
        outputs = self._compiled(list(inputs))
        return outputs if self._returns_tuple else outputs[0]


def _return_tuple(gm: torch.fx.GraphModule) -> bool:
    """Make the graph return a tuple, as Inductor wants it; tell whether it did already."""
    (output,) = gm.graph.find_nodes(op="output")
    (value,) = output.args
    if isinstance(value, (tuple, list)):
        return True
    output.args = ((value,),)
    gm.recompile()
    return False


def _stages(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, int]:
    """Even numbers for host stages, odd ones for device stages, none smaller than that of any input."""
    stages: dict[torch.fx.Node, int] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        parity = 0 if _is_host(node) else 1
        stage = parity
        for source in node.all_input_nodes:
            if source in stages:
                stage = max(stage, stages[source])
        stages[node] = stage if stage % 2 == parity else stage + 1
    return stages


def _is_host(node: torch.fx.Node) -> bool:
    if _is_effect_token(node):
        return False
    tensors = _tensors(node.meta.get("val"))
    sources = [
        tensor for source in node.all_input_nodes for tensor in _tensors(source.meta.get("val"))
    ]
    if not tensors:
        return False
    return all(tensor.device.type == "cpu" for tensor in (*tensors, *sources))


def _is_effect_token(node: torch.fx.Node) -> bool:
    """Whether the node is one of the CPU tensors, without elements, by which torch orders operators with effects."""
    source = node.args[0] if node.target is operator.getitem else None
    of_effect = getattr(source, "target", None) is torch.ops.higher_order.with_effects
    return node.target is torch.ops.prims._make_token.default or (of_effect and node.args[1] == 0)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
