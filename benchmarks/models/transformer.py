"""GPT-2 (Radford et al. 2019) and a vision transformer (Dosovitskiy et al. 2021) from one pre-norm block.

In: sizes. Out: modules over tokens or images. Forbidden: pretrained weights, dropout (its draws differ by device).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward layer of four times the width, each behind a layer norm; (B, L, D) to (B, L, D)."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.attention_norm = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.projections(self.attention_norm(x))
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts.split(width, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.feed_norm(x))


class GPT2(nn.Module):
    """Logits of the next token; (batch, length) int64 to (batch, length, vocabulary).

    The defaults are GPT-2 small, its vocabulary rounded up to a multiple of 64. The output layer shares the
    token embedding's weight.
    """

    def __init__(
        self,
        vocabulary: int = 50304,
        context: int = 1024,
        width: int = 768,
        heads: int = 12,
        layers: int = 12,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


class ViT(nn.Module):
    """Class logits of images cut into patches; (batch, 3, side, side) to (batch, classes)."""

    def __init__(
        self,
        side: int = 32,
        patch: int = 4,
        width: int = 192,
        heads: int = 3,
        layers: int = 6,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])
