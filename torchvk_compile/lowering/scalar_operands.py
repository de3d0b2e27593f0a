"""Numbers that come first: ``torch.tensor(3) - x``.

In: a functional ATen graph. Out: the same graph, in which an operand on vk precedes every 0-d CPU operand.
Forbidden: touching nodes that move data between devices.

Inductor takes a pointwise result's device from the first operand, except for devices in its own list of GPUs. A 0-d
CPU tensor in that place would make the result a CPU tensor.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten


def put_device_operands_first(module: torch.fx.GraphModule) -> None:
    """Multiply leading 0-d CPU operands by one on the device, which leaves every value and dtype as it is."""
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not _on_vk(node.meta.get("val")):
            continue
        operands = [arg for arg in node.args if isinstance(arg, torch.fx.Node)]
        if not operands or not any(_on_vk(arg.meta.get("val")) for arg in operands[1:]):
            continue
        if _is_host_number(operands[0].meta.get("val")):
            node.replace_input_with(operands[0], _on_device(module, node, operands[0]))
            changed = True
    if changed:
        module.recompile()


def _on_device(
    module: torch.fx.GraphModule, user: torch.fx.Node, number: torch.fx.Node
) -> torch.fx.Node:
    value, device = number.meta["val"], user.meta["val"].device
    with value.fake_mode:
        example = torch.empty((), dtype=value.dtype, device=device)
    with module.graph.inserting_before(user):
        one = module.graph.call_function(
            _aten.full.default, ([], 1), {"dtype": value.dtype, "device": device}
        )
        product = module.graph.call_function(_aten.mul.Tensor, (one, number))
    one.meta["val"] = product.meta["val"] = example
    return product


def _on_vk(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "vk"


def _is_host_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() == 0
