"""From FX nodes to what a plan says about its origins.

In: FX nodes with the metadata that Dynamo and AOTAutograd left on them. Out: `Origin`s.
Forbidden: text for people beyond names; deciding which nodes a kernel computes (the scheduling knows).
"""

from __future__ import annotations

import functools
import hashlib
import operator
import os
import re
from collections.abc import Iterable
from typing import Any

import torch

from torchvk_compile.plan.origins import Frame, Origin

_FRAME = re.compile(r'^ *File "(?P<file>[^\n]*)", line (?P<line>\d+), in (?P<function>[^\n]*)\n')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<function>.*)_at_\d+$")

# "L['self'].blocks.0.norm", in older releases "L['self']._modules['blocks']._modules['0']".
_MODULE_ITEM = re.compile(r"(?:\._modules)?\[['\"]?(?P<name>[^'\"\]]*)['\"]?\]")

_SHORT_DTYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def origins_in_order(nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    """The operators among the nodes, in the order of their graph."""
    operators = [node for node in nodes if isinstance(node.target, torch._ops.OperatorBase)]
    return sorted(operators)


def origin_of(node: torch.fx.Node) -> Origin:
    """What a plan says about a node."""
    op, composite = str(node.target), node.meta.get("original_aten")
    return Origin(
        node=node.name,
        op=op,
        composite="" if composite is None or str(composite) == op else str(composite),
        module=_module_path(node.meta),
        value=_value(node.meta.get("val")),
        inputs=tuple(dict.fromkeys(_producer(n).name for n in node.all_input_nodes)),
        frames=frames_of(node.meta.get("stack_trace") or ""),
    )


def source_digest(graph: torch.fx.Graph) -> str:
    """A digest of everything the plans of a graph will say about the user's program; empty if that is nothing.

    Line numbers are left out: they change with every edit above, and `Frame.current_line` corrects them. So is
    the directory of code that is no file, such as a notebook's cells, whose names change with every process.
    """
    digest, empty = hashlib.sha256(), True
    for node in graph.nodes:
        for frame in frames_of(node.meta.get("stack_trace") or ""):
            file = frame.file if os.path.exists(frame.file) else os.path.basename(frame.file)
            place = (node.name, _module_path(node.meta), file, frame.function, frame.code)
            digest.update(repr(place).encode())
            empty = False
    return "" if empty else digest.hexdigest()[:16]


@functools.lru_cache(maxsize=4096)
def frames_of(stack_trace: str) -> tuple[Frame, ...]:
    """The user's frames of a stack trace as Python prints it, innermost first.

    Frames inside torch are left out, unless there are no others.
    """
    frames = []
    blocks = re.split(r"(?m)^(?= *File \")", stack_trace)
    for block in reversed(blocks):
        if (match := _FRAME.match(block)) is None:
            continue
        code = block[match.end() :].partition("\n")[0].strip()
        resumed = _RESUMED.match(match["function"])
        function = resumed["function"] if resumed else match["function"]
        frames.append(Frame(match["file"], int(match["line"]), function, code))
    own = [frame for frame in frames if not frame.file.startswith(_TORCH)]
    return tuple(own or frames[:1])


def _producer(node: torch.fx.Node) -> torch.fx.Node:
    """The operator, or input of the graph, that a value comes from: parts of a tuple are no operators."""
    while node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node


def _module_path(meta: dict[str, Any]) -> str:
    """Path of the innermost module that called a node, from the compiled module."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, _ = list(stack.values())[-1]
    path = _MODULE_ITEM.sub(lambda match: f".{match['name']}", path)
    return path.removeprefix("L").removeprefix(".self").removeprefix(".")


def _value(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(_value(part) for part in value)
    if not isinstance(value, torch.Tensor):
        return "" if value is None else type(value).__name__
    name = str(value.dtype).removeprefix("torch.")
    for long, short in _SHORT_DTYPES.items():
        if name.startswith(long) and name[len(long) :].isdecimal():
            name = short + name[len(long) :]
            break
    return f"{name}[{', '.join(map(str, value.shape))}]"
