"""Attention: the operators of the namespace ``torchvk`` that `scaled_dot_product_attention` becomes on vk tensors.

In: the operators' arguments as Inductor's IR. Out: launches of one kernel per pass. Forbidden: Slang text; the scores
in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.lowering import empty
from torch._inductor.virtualized import V

from torchvk_compile.codegen.attention import AttentionCall, head_width, launch_attention
from torchvk_compile.codegen.attention_config import Heads, Pass, alternatives, choose_config
from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.dtypes import require_supported
from torchvk_compile.codegen.launch import contiguous_input
from torchvk_compile.lowering.matmul import realize_operand
from torchvk_compile.lowering.registry import route
from torchvk_compile.tuning.choice import chosen
from torchvk_compile.tuning.problem import Problem

_FORWARD = ("query", "key", "value", "mask", "seed")
_BACKWARD = ("gradient", *_FORWARD, "logsumexp", "delta")
_OPERATORS: dict[Pass, tuple[str, tuple[str, ...]]] = {
    "forward": ("attention", _FORWARD),
    "query": ("attention_query_gradient", _BACKWARD),
    "key_value": ("attention_key_value_gradient", _BACKWARD),
}
"""The operator of every pass in the namespace ``torchvk``, and its tensors in order."""

_OP = "aten.scaled_dot_product_attention"


def register_attention() -> None:
    """Route the operators of `torchvk_compile.device.attention` here."""
    operators = torch.ops.torchvk
    route(operators.attention.default, _attention)
    route(operators.attention_query_gradient.default, _query_gradient)
    route(operators.attention_key_value_gradient.default, _key_value_gradient)


def _attention(
    query: Any, key: Any, value: Any, mask: Any, seed: Any, *settings: Any
) -> list[ir.TensorBox]:
    tensors = {"query": query, "key": key, "value": value}
    results = _pass("forward", tensors, mask, seed, {}, *settings)
    if len(results) == 2:
        nothing = empty([0], dtype=query.get_dtype(), device=query.get_device())
        results.append(nothing)
    return results


def _query_gradient(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    logsumexp: Any,
    delta: Any,
    *settings: Any,
) -> ir.TensorBox:
    tensors = {"query": query, "key": key, "value": value, "gradient": gradient}
    statistics = {"logsumexp": logsumexp, "delta": delta}
    return _pass("query", tensors, mask, seed, statistics, *settings)[0]


def _key_value_gradient(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    logsumexp: Any,
    delta: Any,
    *settings: Any,
) -> list[ir.TensorBox]:
    tensors = {"query": query, "key": key, "value": value, "gradient": gradient}
    statistics = {"logsumexp": logsumexp, "delta": delta}
    return _pass("key_value", tensors, mask, seed, statistics, *settings)


def _pass(
    which: Pass,
    tensors: dict[str, Any],
    mask: Any,
    seed: Any,
    statistics: dict[str, Any],
    dropout_p: float,
    is_causal: bool,
    scale: float,
    token_major: bool,
    with_rest: bool = False,
) -> list[ir.TensorBox]:
    operands = {name: _rows_in_memory(x) for name, x in tensors.items()}
    query, value = operands["query"], operands["value"]
    profile = profile_of(query.get_device().index or 0)
    require_supported(query.get_dtype(), profile, _OP)
    call = AttentionCall(
        which=which,
        tensors=operands,
        mask=None if mask is None else realize_operand(mask),
        seed=None if seed is None else contiguous_input(seed),
        statistics={name: contiguous_input(x) for name, x in statistics.items()},
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
        token_major=token_major,
        with_rest=with_rest,
    )
    widths = head_width(query), head_width(value)
    heads = Heads(query.get_dtype(), *widths, dropout=seed is not None)
    name, order = _OPERATORS[which]
    settings: tuple[Any, ...] = (dropout_p, is_causal, scale, token_major)
    if which == "forward":
        settings = (*settings, with_rest)
    inputs = {**operands, "mask": call.mask, "seed": call.seed, **call.statistics}
    config = chosen(
        choose_config(which, profile, heads),
        lambda: alternatives(which, profile, heads),
        lambda: Problem.of(
            getattr(torch.ops.torchvk, name).default,
            query.get_device(),
            *(inputs[name] for name in order),
            *settings,
        ),
    )
    return launch_attention(call, config)


def _rows_in_memory(x: Any) -> ir.IRNode:
    """`x` in memory with consecutive elements along the last dimension; a copy only where they are not."""
    node = realize_operand(x)
    if not V.graph.sizevars.statically_known_equals(node.get_stride()[-1], 1):
        node = ir.ExternKernel.copy_input(ir.TensorBox(node)).data
        node.freeze_layout()
        node = node.data
    return node
