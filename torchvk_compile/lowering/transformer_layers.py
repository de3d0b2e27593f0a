"""The operators of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` at inference, as what they are made of.

In: arguments of ATen's fused transformer operators. Out: their results. Forbidden: storing the score matrix where
nobody asks for the weights.

Formulas: Vaswani et al., 2017, "Attention Is All You Need".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten

_ROWS, _KEYS = 0, 1
"""Types of mask in ATen: ``[L, S]``, ``[B, S]``; any other is ``[B, heads, L, S]`` or broadcasts to it."""


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """One encoder layer: self-attention and a feed-forward network, each with its residual and normalisation.

    Args:
        src: ``[B, L, embed_dim]``.
        qkv_weight, qkv_bias: ``[3 * embed_dim, embed_dim]`` and ``[3 * embed_dim]``, for query, key and value.
        norm_first: normalise before attention and network instead of after each residual.
        mask, mask_type: as for `multi_head_attention`.

    Returns:
        ``[B, L, embed_dim]``.
    """

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type
        )[0]

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    def first_norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(first_norm(src))
        return x + feed_forward(second_norm(x))
    x = first_norm(src + attend(src))
    return second_norm(x + feed_forward(x))


def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of several heads with its projections.

    Args:
        query: ``[B, L, embed_dim]``; `key`, `value`: ``[B, S, embed_dim]``.
        mask: nonzero where a key must not be seen, of one of ATen's three types.

    Returns:
        The result, ``[B, L, embed_dim]``, and the weights: ``[B, L, S]`` averaged over heads or
        ``[B, heads, L, S]``; empty if they are not needed.
    """
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for x, weight, bias in zip(
            (query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True
        )
    )
    hidden = None if mask is None else _over_heads(mask.bool(), mask_type)
    weights = query.new_empty(0)
    if need_weights:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = scores.softmax(-1)
        mixed = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        seen = None if hidden is None else ~hidden
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return F.linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def _over_heads(mask: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    """The mask in a shape that broadcasts to ``[B, heads, L, S]``."""
    if mask_type == _KEYS:
        return mask[:, None, None, :]
    if mask_type == _ROWS:
        return mask[None, None]
    return mask


TRANSFORMER_LAYERS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._native_multi_head_attention.default: multi_head_attention,
}
