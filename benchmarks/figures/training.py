"""Whole training steps: forward, backward, optimizer, in float32.

In: the scale. Out: cases; the first three losses are what is checked. Forbidden: data loading.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from models.perceptron import mlp
from models.resnet import ResNet18
from models.transformer import GPT2
from torch import nn
from torch.nn import functional

from figures.case import Case, Place, Program, Work, integers, normal

_Data = Callable[[], tuple[torch.Tensor, torch.Tensor]]
_CHECKED_STEPS = 3


def cases(full: bool) -> list[Case]:
    """The models at their usual sizes on a GPU; thin ones on a software rasteriser."""
    images = (128, 3, 32, 32) if full else (4, 3, 32, 32)
    tokens = (4, 512) if full else (2, 32)
    vocabulary = 50304 if full else 512

    def residual() -> nn.Module:
        return ResNet18(width=64 if full else 8)

    def language() -> nn.Module:
        if full:
            return GPT2()
        return GPT2(vocabulary, context=32, width=64, heads=4, layers=2)

    def pictures() -> tuple[torch.Tensor, torch.Tensor]:
        return normal(*images, seed=1), integers(10, images[0], seed=2)

    def text() -> tuple[torch.Tensor, torch.Tensor]:
        return integers(vocabulary, *tokens, seed=1), integers(vocabulary, *tokens, seed=2)

    def digits() -> tuple[torch.Tensor, torch.Tensor]:
        return normal(64, 784, seed=1), integers(10, 64, seed=2)

    return [
        _case("MLP 784-256-128-10, batch 64, Adam", mlp, digits, _adam),
        _case(f"ResNet-18, {'x'.join(map(str, images))}, SGD", residual, pictures, _sgd),
        _case(f"GPT-2, {'x'.join(map(str, tokens))} tokens, AdamW", language, text, _adamw),
    ]


def _case(
    name: str,
    model: Callable[[], nn.Module],
    data: _Data,
    optimizer: Callable[[nn.Module, bool], torch.optim.Optimizer],
) -> Case:
    def build(place: Place) -> Program:
        return _program(place, model, data, optimizer)

    # Adam divides by the gradient's size: rounding of tiny gradients shows in later losses.
    return Case("training", name, build, Work(), 2e-3, checked_runs=_CHECKED_STEPS)


def _program(
    place: Place,
    make_model: Callable[[], nn.Module],
    data: _Data,
    make_optimizer: Callable[[nn.Module, bool], torch.optim.Optimizer],
) -> Program:
    torch.manual_seed(0)
    model = make_model()
    model = (model.double() if place.wide else model).to(place.device)
    inputs, targets = (place.put(tensor) for tensor in data())
    optimizer = make_optimizer(model, place.device.type != "cpu")

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = model(inputs)
        return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def update() -> None:
        optimizer.step()

    ready_loss, ready_update = place.ready(loss_of), place.ready(update)

    def run() -> torch.Tensor:
        loss = ready_loss(inputs, targets)
        loss.backward()
        ready_update()
        optimizer.zero_grad()
        return loss.detach()

    return run


def _adam(model: nn.Module, on_gpu: bool) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3, capturable=on_gpu, foreach=True)


def _adamw(model: nn.Module, on_gpu: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=on_gpu, foreach=True)


def _sgd(model: nn.Module, on_gpu: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
