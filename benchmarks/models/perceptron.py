"""A multilayer perceptron and a small convolutional network for images.

In: sizes. Out: modules that map images to logits. Forbidden: random state beyond torch's own initialisation.
"""

from __future__ import annotations

from torch import nn


def mlp(pixels: int = 784, hidden: tuple[int, ...] = (256, 128), classes: int = 10) -> nn.Module:
    """Linear and ReLU layers; (batch, pixels) to (batch, classes)."""
    layers: list[nn.Module] = []
    width = pixels
    for following in hidden:
        layers += [nn.Linear(width, following), nn.ReLU()]
        width = following
    return nn.Sequential(*layers, nn.Linear(width, classes))


def cnn(channels: tuple[int, ...] = (32, 64, 64), side: int = 32, classes: int = 10) -> nn.Module:
    """Convolution, batch norm, ReLU and max pooling; (batch, 3, side, side) to (batch, classes)."""
    layers: list[nn.Module] = []
    width = 3
    for following in channels:
        layers += [
            nn.Conv2d(width, following, 3, padding=1),
            nn.BatchNorm2d(following),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        width = following
    pixels = (side >> len(channels)) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * pixels, classes))
