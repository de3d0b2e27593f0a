"""What the shells of attention, `attention_tile`, `attention_fragments` and `attention_panel`, must know.

In: realized tensors, which pass, and an `AttentionConfig`. Out: a `Launch`. Forbidden: choosing the configuration,
knowing which ATen operator asks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import empty_strided
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.attention_config import (
    AttentionConfig,
    AttentionFragments,
    AttentionPanel,
    AttentionTile,
    Heads,
    Pass,
)
from torchvk_compile.codegen.cooperative import VECTOR
from torchvk_compile.codegen.dtypes import literal, storage_type, to_compute, to_storage
from torchvk_compile.codegen.launch import Launch, Shell

_MODULES = (
    "torchvk_attention",
    "torchvk_gemm",
    "torchvk_memory",
    "torchvk_random",
    "torchvk_reduce",
)
_SHELLS: dict[type[AttentionConfig], tuple[str, tuple[str, ...]]] = {
    AttentionTile: ("attention_tile.slang.j2", _MODULES),
    AttentionPanel: ("attention_panel.slang.j2", (*_MODULES, "torchvk_exponential")),
    AttentionFragments: ("attention_fragments.slang.j2", (*_MODULES, "torchvk_cooperative")),
}
"""The template of every kind of configuration, and the library modules that it imports."""

_LANES = 4


@dataclasses.dataclass(frozen=True)
class AttentionCall:
    """One pass, as its operator was called.

    Attributes:
        which: the pass.
        tensors: realized (B, H, rows, width) tensors with unit stride along the width, by argument name: ``query``,
            ``key``, ``value`` and, but for the forward pass, ``gradient``.
        mask: realized (B, H, L, S) tensor, boolean or added to the scores.
        seed: buffer of the dropout's seed.
        statistics: contiguous float32 buffers, ``logsumexp`` and ``delta``; none for the forward pass.
        dropout_p: probability that a weight is dropped.
        is_causal: queries see the keys up to their own number.
        scale: of the products of query and key.
        token_major: see `torchvk_compile.device.attention`.
        with_rest: whether the forward pass stores what rounding its output leaves.
    """

    which: Pass
    tensors: Mapping[str, ir.IRNode]
    mask: ir.IRNode | None
    seed: ir.IRNode | None
    statistics: Mapping[str, ir.IRNode]
    dropout_p: float
    is_causal: bool
    scale: float
    token_major: bool
    with_rest: bool = False


@dataclasses.dataclass(frozen=True)
class _Operand:
    """How a shell reads a tensor.

    Attributes:
        pointer: name of the argument; with a suffix those of its strides and its first element.
        width: elements of a head.
        scalar: an element as float, as a Slang expression of what memory holds, `stored`.
        packed: Slang type of four stored elements in registers, see `torchvk_gemm.slang`.
        unpack: function that makes floats of them; empty where they are.
        aligned: Slang expression: four elements from a multiple of four on are one aligned vector.
        exact: and always exist if the first one does.
    """

    pointer: str
    width: int
    scalar: str
    packed: str
    unpack: str
    aligned: str
    exact: bool


@dataclasses.dataclass(frozen=True)
class _Product:
    """Scores are ``rows @ columns.T``."""

    rows: _Operand
    columns: _Operand


@dataclasses.dataclass(frozen=True)
class _Result:
    """How a shell writes a tensor; see `_Operand`.

    Attributes:
        storage: Slang type of an element.
        round: function from floats to it; empty for float32.
        widen: function from it to floats; empty for float32.
    """

    pointer: str
    width: int
    storage: str
    round: str
    widen: str
    aligned: str


def launch_attention(call: AttentionCall, config: AttentionConfig) -> list[ir.TensorBox]:
    """The launch of one pass.

    Returns:
        Output, logsumexp and, if asked for, the rest; the query's gradient; or the gradients of key and value.
    """
    query, key, value = (call.tensors[name] for name in ("query", "key", "value"))
    device, dtype = query.get_device(), query.get_dtype()
    batch, heads, length_q, _ = query.get_size()
    _, key_heads, length_k, value_width = value.get_size()
    sizes: dict[str, sympy.Expr] = {
        "length_q": length_q,
        "length_k": length_k,
        "heads": heads,
        "group_size": sympy.simplify(heads / key_heads) if heads != key_heads else sympy.Integer(1),
    }
    inputs = dict(call.tensors)
    if call.mask is not None:
        inputs["mask"] = call.mask
    for name, node in inputs.items():
        names = ("batch", "head", "row", "column") if name == "mask" else ("batch", "head", "row")
        layout = node.get_layout()
        sizes |= {f"{name}_{part}": s for part, s in zip(names, layout.stride, strict=False)}
        sizes[f"{name}_offset"] = layout.offset
    if call.seed is not None:
        inputs["seed"] = call.seed
    inputs |= call.statistics

    sizes_of_results = {
        "forward": ([batch, heads, length_q, value_width],),
        "query": (query.get_size(),),
        "key_value": (key.get_size(), value.get_size()),
    }[call.which]
    names_of_results = ("output", "value_gradient")[: len(sizes_of_results)]
    strides = []
    for name, size in zip(names_of_results, sizes_of_results, strict=True):
        stride = _strides(size, token_major=call.token_major)
        strides.append(stride)
        sizes |= {
            f"{name}_{part}": s for part, s in zip(("batch", "head", "row"), stride, strict=False)
        }
        sizes[f"{name}_offset"] = sympy.Integer(0)
    beside: dict[str, ir.TensorBox] = {}
    if call.which == "forward":
        beside["logsumexp"] = empty_strided(
            [batch, heads, length_q], None, dtype=torch.float32, device=device
        )
        if call.with_rest:
            beside["rest"] = empty_strided(
                sizes_of_results[0], strides[0], dtype=dtype, device=device
            )
    elif call.which == "key_value":
        beside["value_gradient"] = empty_strided(
            sizes_of_results[1], strides[1], dtype=dtype, device=device
        )

    row_heads, rows = (key_heads, length_k) if call.which == "key_value" else (heads, length_q)
    groups = batch * row_heads * CeilDiv(rows, sympy.Integer(config.block_m))
    sizes["workgroups"] = groups
    shell = _shell(call, config, head_width(query), head_width(value))
    first = Launch.create(
        device,
        dtype,
        sizes_of_results[0],
        shell,
        inputs,
        sizes,
        groups,
        stride=strides[0],
        also_written=beside,
        flops=_flops(call),
    )
    return [first, *beside.values()]


def _flops(call: AttentionCall) -> sympy.Expr:
    """Of the products of a pass, 2 for each multiplication; masks by position leave half of the scores."""
    batch, heads, length_q, width = call.tensors["query"].get_size()
    length_k, value_width = call.tensors["value"].get_size()[-2:]
    widths = {
        "forward": width + value_width,
        "query": 2 * width + value_width,
        "key_value": 2 * (width + value_width),
    }[call.which]
    scores = batch * heads * length_q * length_k
    return scores * widths if call.is_causal else 2 * scores * widths


def head_width(node: ir.IRNode) -> int:
    """Elements of a head; tracing has fixed them."""
    return int(V.graph.sizevars.simplify(node.get_size()[-1]))


def _shell(call: AttentionCall, config: AttentionConfig, width: int, value_width: int) -> Shell:
    lanes = VECTOR if isinstance(config, AttentionFragments) else _LANES
    operands = {name: _operand(name, node, lanes) for name, node in call.tensors.items()}
    products = {
        "forward": [("query", "key")],
        "query": [("query", "key"), ("gradient", "value")],
        "key_value": [("key", "query"), ("value", "gradient")],
    }[call.which]
    accumulated = {"forward": ["value"], "query": ["key"], "key_value": ["gradient", "query"]}[
        call.which
    ]
    results = {
        "forward": [("output", value_width)],
        "query": [("output", width)],
        "key_value": [("output", width), ("value_gradient", value_width)],
    }[call.which]
    dtype = call.tensors["query"].get_dtype()
    columns = ("query", "gradient") if call.which == "key_value" else ("key", "value")
    template, modules = _SHELLS[type(config)]
    return Shell(
        template=template,
        workgroup_size=config.workgroup_size,
        modules=modules,
        values={
            "which": call.which,
            "config": config,
            "steps": min(8, config.subgroup),
            "columns": [operands[name] for name in columns],
            "heads": Heads(dtype, width, value_width),
            "causal": call.is_causal,
            "mask": _mask(call.mask),
            "dropout": _dropout(call.dropout_p) if call.seed is not None else None,
            "scale": literal(call.scale, torch.float32),
            "score_scale": literal(call.scale * math.log2(math.e), torch.float32),
            "lengths": ("length_q", "length_k", "heads", "group_size", "workgroups"),
            "of_queries": [name for name in ("query", "gradient", "mask") if _is_given(call, name)],
            "of_keys": ["key", "value"],
            "products": [_Product(operands[rows], operands[columns]) for rows, columns in products],
            "accumulated": [operands[name] for name in accumulated],
            "rest": "rest" if call.with_rest else None,
            "results": [_result(name, dtype, result_width) for name, result_width in results],
        },
        subgroup_size=config.subgroup if config.subgroup > 1 else 0,
        configuration=str(config),
    )


def _is_given(call: AttentionCall, name: str) -> bool:
    return name in call.tensors or (name == "mask" and call.mask is not None)


def _operand(name: str, node: ir.IRNode, lanes: int) -> _Operand:
    layout, dtype = node.get_layout(), node.get_dtype()
    width = head_width(node)
    known_multiple = V.graph.sizevars.statically_known_multiple_of
    aligned = all(known_multiple(step, lanes) for step in (*layout.stride[:-1], layout.offset))
    return _Operand(
        pointer=name,
        width=width,
        scalar=to_compute(dtype, "stored"),
        packed="float4" if dtype is torch.float32 else "uint2",
        unpack="" if dtype is torch.float32 else f"unpack{_capitalised(dtype)}",
        aligned="ALIGNED" if aligned else "false",
        exact=aligned and width % lanes == 0,
    )


def _result(name: str, dtype: torch.dtype, width: int) -> _Result:
    return _Result(
        pointer=name,
        width=width,
        storage=storage_type(dtype),
        round=to_storage(dtype, "").partition("(")[0],
        widen=to_compute(dtype, "").partition("(")[0],
        aligned="true" if width % _LANES == 0 else "false",
    )


def _mask(mask: ir.IRNode | None) -> str | None:
    """What a score gets added, as a Slang expression of what memory holds, `stored`."""
    if mask is None:
        return None
    value = to_compute(mask.get_dtype(), "stored")
    if mask.get_dtype() is torch.bool:
        return f"select({value}, 0.0f, -INFINITY)"
    return f"LOG2_E * {value}"


def _dropout(probability: float) -> dict[str, str]:
    """Random bits below ``threshold`` drop a weight; those that stay are multiplied by ``factor``."""
    threshold = min(round(probability * 2**32), 2**32 - 1)
    return {
        "threshold": f"{threshold}u",
        "factor": literal(1 / (1 - probability), torch.float32),
    }


def _strides(size: list[sympy.Expr], *, token_major: bool) -> list[sympy.Expr]:
    """Of a dense (B, H, rows, width) tensor that lies as (B, rows, H, width) or as it is shaped."""
    _, heads, rows, width = size
    if token_major:
        return [rows * heads * width, width, heads * width, sympy.Integer(1)]
    return [heads * rows * width, rows * width, width, sympy.Integer(1)]


def _capitalised(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").capitalize()
