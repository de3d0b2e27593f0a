"""The three networks of the experiments: a perceptron, a convolutional network, a small GPT.

In: a case's settings. Out: a model with its first weights, on the CPU. Forbidden: importing anything outside of
this package but torch; knowing devices.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CLASSES = 10
CIFAR_SHAPE = (3, 32, 32)


def build_model(case: Mapping[str, Any]) -> nn.Module:
    """The model a case names, its weights drawn from the case's seed.

    Args:
        case: ``model`` is mlp (with ``inputs`` and ``hidden``), cnn (``channels``) or gpt (``vocabulary``, ``context``,
            ``width``, ``heads``, ``layers``); ``recompute`` has cnn and gpt recompute their blocks' activations.
    """
    torch.manual_seed(case["seed"])
    recompute = bool(case.get("recompute", False))
    if case["model"] == "mlp":
        return _perceptron([case["inputs"], *case["hidden"]])
    if case["model"] == "cnn":
        return ConvolutionalNetwork(case["channels"], recompute)
    if case["model"] == "gpt":
        sizes = (case[name] for name in ("vocabulary", "context", "width", "heads", "layers"))
        return SmallGPT(*sizes, recompute=recompute)
    raise ValueError(f"unknown model {case['model']!r}")


def random_batch(case: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of one batch, drawn from the case's seed, on the CPU."""
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    batch = case["batch"]
    if case["model"] == "gpt":
        shape = (batch, case["context"])
        tokens = [
            torch.randint(case["vocabulary"], shape, generator=generator, dtype=torch.int64)
            for _ in range(2)
        ]
        return tokens[0], tokens[1]
    pixels = (case["inputs"],) if case["model"] == "mlp" else CIFAR_SHAPE
    images = torch.rand((batch, *pixels), generator=generator)
    return images, torch.randint(CLASSES, (batch,), generator=generator)


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all targets, float32."""
    outputs = model(inputs)
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def _perceptron(widths: list[int]) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


class ConvolutionalNetwork(nn.Module):
    """Blocks of 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling, then one linear layer.

    Takes (batch, 3, 32, 32), gives logits (batch, 10).
    """

    def __init__(self, channels: list[int], recompute: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            for before, after in itertools.pairwise([CIFAR_SHAPE[0], *channels])
        )
        side = CIFAR_SHAPE[1] // 2 ** len(channels)
        self.classifier = nn.Linear(channels[-1] * side * side, CLASSES)
        self.recompute = recompute

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            if self.recompute and self.training:
                images = checkpoint(block, images, use_reentrant=False)
            else:
                images = block(images)
        return self.classifier(images.flatten(1))


class Block(nn.Module):
    """A pre-norm transformer block: causal self-attention, then a perceptron four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.attention(self.norms[0](x)).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.norms[1](x))


class SmallGPT(nn.Module):
    """A decoder of `Block`s. Takes tokens (batch, context), gives logits (batch, context, vocabulary)."""

    def __init__(
        self,
        vocabulary: int,
        context: int,
        width: int,
        heads: int,
        layers: int,
        *,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.recompute = recompute

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))
