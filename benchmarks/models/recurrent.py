"""An LSTM language model.

In: sizes. Out: modules over tokens. Forbidden: dropout (its draws differ by device).
"""

from __future__ import annotations

import torch
from torch import nn


class RecurrentModel(nn.Module):
    """Logits of the next token; (batch, length) int64 to (batch, length, vocabulary)."""

    def __init__(self, vocabulary: int = 256, width: int = 128, layers: int = 1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.memory = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.memory(self.tokens(tokens))
        return self.head(hidden)
