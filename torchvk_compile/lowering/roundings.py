"""Where float32 values become float16 or bfloat16: in a kernel, or only where it stores them.

In: a functional ATen graph, forward and backward in one. Out: the same graph; conversions to 16 bits by which torch's
decompositions close an operator are ``_to_copy``, which torch's decompositions leave in no other graph. Forbidden:
touching a conversion that the program asks for.

Arithmetic on 16-bit floats is float32 within a kernel and rounded where its result is stored. An operator that torch
decomposes into float32 arithmetic between two conversions (a softmax, a norm, a loss) is treated alike: the gradient of
such an operator often is the difference of two of its results. A conversion in the program, ``x.half()`` or one of
autocast's, rounds wherever it stands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import make_pointwise

from torchvk_compile.lowering.graph_check import source_digest
from torchvk_compile.lowering.registry import route

_aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
CONVERT = torch.ops.prims.convert_element_type.default
NARROW = _aten._to_copy.default
"""Turns a float32 tensor into one of 16 bits that is rounded where it is stored."""

_CASTS = frozenset(
    {
        _aten._autocast_to_reduced_precision,
        _aten._to_copy,
        _aten.copy,
        _aten.copy_,
        _aten.to,
        _aten.type_as,
        torch.ops.prims.convert_element_type,
    }
)
"""Operators that exist to convert."""


_ROUND = _aten.to.dtype
"""Stands for a conversion of the program while passes run that would drop it; functional graphs have no other."""


def hide_roundings(graph: torch.fx.Graph) -> None:
    """Put the program's conversions to 16 bits out of reach of Inductor's patterns.

    For releases whose patterns make nothing of ``x.half().float()``; `RoundingWhereStored` brings them back.
    """
    for node in graph.find_nodes(op="call_function", target=CONVERT):
        if node.meta["val"].dtype in HALVES and not closes_an_operator(node):
            node.target = _ROUND


class RoundingWhereStored(CustomGraphPass):
    """Has operators that compute in float32 rounded once, where their results are stored, and no others.

    Runs behind Inductor's own patterns, which look for conversions as torch writes them.
    """

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=_ROUND):
            node.target = CONVERT
        for node in graph.find_nodes(op="call_function", target=CONVERT):
            if closes_an_operator(node):
                source, dtype = node.args
                node.target, node.args, node.kwargs = NARROW, (source,), {"dtype": dtype}

    def uuid(self) -> Any:
        return source_digest()


def closes_an_operator(node: torch.fx.Node) -> bool:
    """Whether a conversion on vk makes 16 bits of a float32 result that an operator of 16-bit floats came to."""
    operator = getattr(node.meta.get("original_aten"), "overloadpacket", None)
    value = node.meta["val"]
    return (
        operator is not None
        and operator not in _CASTS
        and value.device.type == "vk"
        and value.dtype in HALVES
        and node.args[0].meta["val"].dtype == torch.float32
    )


def register_roundings() -> None:
    """Lower the conversion that does not round within a kernel."""
    route(NARROW, _narrow)


def _narrow(x: Any, *, dtype: torch.dtype) -> Any:
    return make_pointwise(lambda value: value, override_return_dtype=dtype)(x)
