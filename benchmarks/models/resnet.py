"""ResNet-18 for 32x32 images: 3x3 stem without pooling (He et al. 2016, section 4.2, with the widths of ResNet-18).

In: sizes. Out: modules that map images to logits. Forbidden: pretrained weights.
"""

from __future__ import annotations

import torch
from torch import nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut; (N, in, H, W) to (N, out, H/stride, W/stride)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first_norm(self.first(x)).relu()
        y = self.second_norm(self.second(y))
        return (y + self.shortcut(x)).relu()


class ResNet18(nn.Module):
    """(batch, 3, 32, 32) to (batch, classes). `width` is that of the first stage, 64 in the paper."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        stages: list[nn.Module] = []
        before = width
        for stage in range(4):
            after = width << stage
            stages += [
                BasicBlock(before, after, 1 if stage == 0 else 2),
                BasicBlock(after, after, 1),
            ]
            before = after
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))
