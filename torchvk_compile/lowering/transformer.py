"""What `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call in evaluation instead of their parts.

In: aten._native_multi_head_attention and aten._transformer_encoder_layer_fwd of vk tensors. Out: products, norms and
`scaled_dot_product_attention`. Forbidden: Slang text; nested tensors.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from torchvk_compile.lowering.decomposed import route_decomposition

_OF_QUERIES_AND_KEYS, _OF_KEYS, _OF_HEADS = 0, 1, 2
"""Mask types of these operators (aten/src/ATen/native/transformers): (L, S), (B, S) or (B, H, L, S)."""


def register_transformer_layers() -> None:
    """Lower both operators as what they are made of."""
    aten = torch.ops.aten
    route_decomposition(aten._native_multi_head_attention.default, multi_head_attention)
    route_decomposition(aten._transformer_encoder_layer_fwd.default, encoder_layer)


def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """aten._native_multi_head_attention on (B, L, E), (B, S, E) and (B, S, E); `mask` is true where keys are hidden.

    Returns:
        (B, L, E), and the weights (B, L, S), or (B, H, L, S) if they are not averaged, or nothing.
    """
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    parts = [
        F.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    ]
    visible = _visible(mask, mask_type)
    if not need_weights:
        return _projected(parts, visible, proj_weight, proj_bias), query.new_empty(0)
    q, k, v = parts
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    shares = torch.softmax(scores, -1)
    output = F.linear((shares @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    return output, shares.mean(1) if average_attn_weights else shares


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
    """aten._transformer_encoder_layer_fwd on (B, L, E); `mask` is true where keys are hidden."""
    visible = _visible(mask, mask_type)

    def attend(x: torch.Tensor) -> torch.Tensor:
        packed = F.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, num_heads, -1))
        parts = [packed[:, :, i].transpose(1, 2) for i in range(3)]
        return _projected(parts, visible, proj_weight, proj_bias)

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm_1(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + feed_forward(x))


def _projected(
    parts: list[torch.Tensor],
    visible: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    query, key, value = parts
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
    return F.linear(attended.transpose(1, 2).flatten(2), weight, bias)


def _visible(mask: torch.Tensor | None, mask_type: int | None) -> torch.Tensor | None:
    """Where keys are seen, broadcasting to (B, H, L, S)."""
    if mask is None:
        return None
    visible = ~mask.to(torch.bool)
    if mask_type == _OF_KEYS:
        return visible[:, None, None, :]
    if mask_type in (_OF_QUERIES_AND_KEYS, _OF_HEADS):
        return visible
    raise RuntimeError(f"a mask needs a mask_type of 0, 1 or 2, not {mask_type}")
