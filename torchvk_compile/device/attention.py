"""Attention: `torch.nn.functional.scaled_dot_product_attention` as one kernel, where there is one.

In: the call on vk tensors, eager or while a graph is traced. Out: the operators ``torchvk::attention…``, or torch's own
decomposition into two products and a softmax. Forbidden: device work; deciding how a kernel computes.

Torch asks a device for its fused attention through a C++ table that Python cannot fill (`_fused_sdp_choice_stub`).
Hence the whole operator gets a kernel for this device's autograd key, which makes torch's choice here and hands the
masks on as they are (torch turns boolean ones into numbers first).

The operators of the namespace ``torchvk`` know nothing of autograd's rules for broadcasting, nor of random state:
shapes are made equal, and a seed is drawn, before they are called. The backward pass draws the same numbers again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchvk_compile import torch_compat
from torchvk_compile.device import eager

WIDEST_HEAD = 256
"""Largest head dimension that the kernels hold in registers."""

_FUSED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MASK_DTYPES = (torch.bool, *_FUSED_DTYPES)

_COMMON = "float dropout_p, bool is_causal, float scale, bool token_major"
_OPERANDS = "Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? seed"
_BACKWARD = f"(Tensor gradient, {_OPERANDS}, Tensor logsumexp, Tensor delta, {_COMMON})"
_SCHEMAS = (
    f"attention({_OPERANDS}, {_COMMON}, bool with_rest) -> (Tensor output, Tensor logsumexp, Tensor rest)",
    f"attention_query_gradient{_BACKWARD} -> Tensor",
    f"attention_key_value_gradient{_BACKWARD} -> (Tensor key_gradient, Tensor value_gradient)",
)
"""What the operators take and return.

``query`` is (B, H, L, E), ``key`` (B, G, S, E), ``value`` (B, G, S, F) with G a divisor of H, ``mask`` boolean or added
to the scores, (B, H, L, S) with any strides. ``logsumexp`` and ``delta`` are float32 (B, H, L): of the scores, infinite
for rows that see no key, and of ``gradient * output``. ``rest`` is what rounding leaves of the output, in its dtype;
it is empty unless asked for ``with_rest``. ``seed`` is an int64 scalar. With ``token_major`` results lie in
memory as (B, L, H, E), else as they are shaped.
"""

_libraries: list[torch.library.Library] = []


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The kernel behind `torch.nn.functional.scaled_dot_product_attention`; arguments as there.

    Raises:
        RuntimeError: `torch.nn.attention.sdpa_kernel` allows no way to compute this call; and what torch raises for
            wrong arguments.
    """
    fused_allowed, decomposed_allowed = torch_compat.attention_ways()
    obstacle = _obstacle(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    if fused_allowed and obstacle is None:
        return _fused(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if not decomposed_allowed:
        raise RuntimeError(
            "No available kernel. Aborting execution. scaled_dot_product_attention on vk: "
            + (obstacle or "sdpa_kernel() allows neither a fused kernel nor SDPBackend.MATH")
        )
    return torch.ops.aten.scaled_dot_product_attention.default.decompose(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )


def _is_left_aligned(tensor: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether padded sequences may become a nested tensor, which this device has no kernels for."""
    return False


def _native_multi_head_attention(
    *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The compiled operator; torch's shape function has an empty tensor where its kernels return no weights."""
    operator = torch.ops.aten._native_multi_head_attention.default
    output, weights = eager.run(operator, args, kwargs)
    return output, weights if weights.dim() > 1 else None


KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "_native_multi_head_attention": _native_multi_head_attention,
    "_nested_tensor_from_mask_left_aligned": _is_left_aligned,
}
"""For the dispatch key PrivateUse1, which the first one meets in inference mode only."""

AUTOGRAD_KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": scaled_dot_product_attention
}
"""For the dispatch key AutogradPrivateUse1: they leave derivatives to the operators they call."""


def _obstacle(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
) -> str | None:
    """Why the kernels cannot compute a call (wrong calls included), or None."""
    tensors = (query, key, value) if mask is None else (query, key, value, mask)
    if any(tensor.device != query.device or tensor.is_nested for tensor in tensors):
        return "tensors are nested or on different devices"
    if query.dtype not in _FUSED_DTYPES or not query.dtype == key.dtype == value.dtype:
        return f"no kernel for {query.dtype}, {key.dtype} and {value.dtype}"
    if min(query.dim(), key.dim(), value.dim()) < 2:
        return "fewer than two dimensions"
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        return "query, key and value do not fit"
    if query.shape[-1] > WIDEST_HEAD or value.shape[-1] > WIDEST_HEAD:
        return f"heads have more than {WIDEST_HEAD} dimensions"
    if any(size == 0 for tensor in tensors for size in tensor.shape):
        return "a tensor is empty"
    if not 0 <= dropout_p < 1:
        return f"a dropout probability of {dropout_p}"
    if mask is not None:
        if is_causal:
            return "a mask and is_causal exclude each other"
        if mask.dtype not in _MASK_DTYPES:
            return f"a mask of {mask.dtype}"
        if mask.requires_grad and torch.is_grad_enabled():
            return "the mask needs a gradient"
    if any(_has_tangent(tensor) for tensor in tensors):
        return "forward-mode derivatives"
    return _shape_obstacle(query, key, value, mask, enable_gqa)


def _shape_obstacle(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    enable_gqa: bool,
) -> str | None:
    heads, groups = _heads(query), _heads(key)
    if enable_gqa and (groups != _heads(value) or heads % groups != 0):
        return f"{heads} query heads with {groups} key and {_heads(value)} value heads"
    shapes = [
        tensor.shape[:-3] if enable_gqa else tensor.shape[:-2] for tensor in (query, key, value)
    ]
    try:
        leading = torch.broadcast_shapes(*shapes)
        if mask is not None:
            if enable_gqa:
                leading = (*leading, heads)
            full = (*leading, query.shape[-2], key.shape[-2])
            if torch.broadcast_shapes(mask.shape, full) != torch.Size(full):
                return "the mask has more dimensions than the scores"
    except RuntimeError:
        return "batch dimensions do not broadcast"
    return None


def _heads(tensor: torch.Tensor) -> int:
    return tensor.shape[-3] if tensor.dim() > 2 else 1


def _has_tangent(tensor: torch.Tensor) -> bool:
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


# The fused way ------------------------------------------------------------------------------------------------------


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    heads, groups = _heads(query), max(_heads(key), _heads(value))
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads = max(heads, groups)
    two_dimensional = max(query.dim(), key.dim(), value.dim()) == 2
    query, key, value = (
        _four_dimensional(tensor, (*batch, count))
        for tensor, count in ((query, heads), (key, groups), (value, groups))
    )
    if mask is not None:
        mask = mask.expand(*batch, heads, query.shape[-2], key.shape[-2])
        mask = _four_dimensional(mask, (*batch, heads))
    seed = None
    if dropout_p > 0:
        seed = torch.randint(2**62, (), dtype=torch.int64, device=query.device)
    output, *_ = torch.ops.torchvk.attention(
        query,
        key,
        value,
        mask,
        seed,
        float(dropout_p),
        is_causal,
        1 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale),
        query.stride(1) < query.stride(2),
        _needs_rest(query, key, value),
    )
    if two_dimensional:
        return output[0, 0]
    return output if len(batch) == 1 else output.view(*batch, *output.shape[1:])


def _needs_rest(*operands: torch.Tensor) -> bool:
    """Whether there will be a backward pass in 16 bits.

    It takes the sum of ``gradient * output`` from every element of a row's ``gradient @ value``. Where one key has
    nearly all of the weight little remains, and that would be lost in the output's rounding.
    """
    narrow = operands[0].dtype is not torch.float32
    return narrow and torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)


def _four_dimensional(tensor: torch.Tensor, leading: tuple[int, ...]) -> torch.Tensor:
    """`tensor` with its leading dimensions expanded to `leading`, all but the last of which become one."""
    if tensor.shape[:-2] != leading:
        tensor = tensor.expand(*leading, *tensor.shape[-2:])
    if len(leading) == 2:
        return tensor
    if len(leading) == 1:
        return tensor.unsqueeze(0)
    return tensor.flatten(0, len(leading) - 2)


def _empty(like: torch.Tensor, size: tuple[Any, ...], token_major: bool) -> torch.Tensor:
    return torch.empty_permuted(
        size, (0, 2, 1, 3) if token_major else (0, 1, 2, 3), dtype=like.dtype, device=like.device
    )


def _fix_widths(*tensors: torch.Tensor) -> None:
    """Widths of heads decide which code is made: a graph is compiled for one value of them."""
    for tensor in tensors:
        int(tensor.shape[-1])


def _fake_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    seed: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    token_major: bool,
    with_rest: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _fix_widths(query, value)
    size = (*query.shape[:3], value.shape[3])
    output = _empty(query, size, token_major)
    rest = _empty(query, size, token_major) if with_rest else query.new_empty(0)
    return output, query.new_empty(query.shape[:3], dtype=torch.float32), rest


def _fake_query_gradient(gradient: torch.Tensor, query: torch.Tensor, *others: Any) -> torch.Tensor:
    _fix_widths(gradient, query)
    return _empty(query, tuple(query.shape), others[-1])


def _fake_key_value_gradient(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    _fix_widths(query, value)
    return tuple(_empty(tensor, tuple(tensor.shape), others[-1]) for tensor in (key, value))  # type: ignore[return-value]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    *tensors, dropout_p, is_causal, scale, token_major, with_rest = inputs
    output, logsumexp, rest = output
    ctx.save_for_backward(*tensors, output, logsumexp, rest if with_rest else None)
    ctx.settings = (dropout_p, is_causal, scale, token_major)


def _backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
    query, key, value, mask, seed, output, logsumexp, rest = ctx.saved_tensors
    exact = output.float() if rest is None else output.float() + rest
    delta = (gradient * exact).sum(-1)
    arguments = (gradient, query, key, value, mask, seed, logsumexp, delta, *ctx.settings)
    gradients: list[torch.Tensor | None] = [None] * 10
    if ctx.needs_input_grad[0]:
        gradients[0] = torch.ops.torchvk.attention_query_gradient(*arguments)
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        gradients[1:3] = torch.ops.torchvk.attention_key_value_gradient(*arguments)
    return tuple(gradients)


def _refuse_second_derivative(*_: Any) -> None:
    raise RuntimeError(
        "scaled_dot_product_attention on vk: the fused kernels have no second derivative. Compute it inside "
        "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
    )


def define_operators() -> None:
    """Define the operators of the namespace ``torchvk``, with their shapes and derivatives; called once."""
    library = torch.library.Library("torchvk", "FRAGMENT")
    _libraries.append(library)
    for schema in _SCHEMAS:
        library.define(schema)
    for name, fake in (
        ("attention", _fake_attention),
        ("attention_query_gradient", _fake_query_gradient),
        ("attention_key_value_gradient", _fake_key_value_gradient),
    ):
        torch.library.register_fake(f"torchvk::{name}", fake, lib=library)
    torch.library.register_autograd(
        "torchvk::attention", _backward, setup_context=_save_for_backward, lib=library
    )
    for name in ("attention_query_gradient", "attention_key_value_gradient"):
        torch.library.register_autograd(f"torchvk::{name}", _refuse_second_derivative, lib=library)
