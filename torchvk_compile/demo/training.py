"""The demo's training loop, the same for Vulkan compiled, Vulkan eager and CPU eager.

In: a model on its device, data on the CPU, a `Recipe`. Out: losses, accuracy, step times.
Forbidden: branches on the device beyond what a user's script would need.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

import torchvk_compile
from torchvk_compile.demo.digits import DigitData

_HIDDEN = (128, 64)
_CLASSES = 10


@dataclass(frozen=True)
class Recipe:
    """What is trained how: the seed fixes the first weights and the order of the batches."""

    epochs: int
    batch_size: int
    learning_rate: float = 3e-3
    seed: int = 0


@dataclass(frozen=True)
class TrainingRun:
    """Outcome of one training: a loss per step, test accuracy, seconds per epoch."""

    losses: list[float]
    accuracy: float
    epoch_seconds: list[float]


@dataclass(frozen=True)
class StepCost:
    """What one steady training step takes, its batch already on the device.

    Short graphs share submissions. `submissions_per_graph_call` is counted with each graph submitted
    before the next is called: 1 means nothing but the graphs was submitted, each in one piece.
    """

    dispatches: float
    submissions: float
    graph_calls: float
    submissions_per_graph_call: float


def build_model(pixels: int, recipe: Recipe) -> nn.Sequential:
    """The classifier with its first weights, on the CPU: Linear-ReLU layers, logits at the end."""
    torch.manual_seed(recipe.seed)
    widths = (pixels, *_HIDDEN)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], _CLASSES))


class Trainer:
    """A model, its optimizer and the three functions of training, compiled or eager.

    `backend` is the ``torch.compile`` backend, or None for eager.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, backend: str | None) -> None:
        self.recipe = recipe
        self.device = next(model.parameters()).device
        on_gpu = self.device.type != "cpu"
        # capturable keeps Adam's step counters on the GPU, so that its update is one graph.
        optimizer = torch.optim.Adam(
            model.parameters(), lr=recipe.learning_rate, capturable=on_gpu, foreach=True
        )
        self._zero_grad = optimizer.zero_grad

        def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(model(images), labels)

        def count_correct(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return (model(images).argmax(dim=1) == labels).sum()

        def update() -> None:
            optimizer.step()

        def ready(function: Callable[..., torch.Tensor | None]) -> Callable[..., torch.Tensor]:
            return function if backend is None else torch.compile(function, backend=backend)

        self._loss_of = ready(loss_of)
        self._count_correct = ready(count_correct)
        self._update = ready(update)

    def step(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        after_graph: Callable[[], object] = lambda: None,
    ) -> torch.Tensor:
        """One optimizer step on a batch that is on the device. Returns the loss, still there.

        `after_graph` is called after the forward pass, the backward pass and the update.
        """
        loss = self._loss_of(images, labels)
        after_graph()
        loss.backward()
        after_graph()
        self._update()
        after_graph()
        self._zero_grad()
        return loss.detach()

    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Share of images classified right, in one batch."""
        with torch.no_grad():
            correct = self._count_correct(images.to(self.device), labels.to(self.device))
        return correct.item() / len(labels)

    def train(self, data: DigitData, on_epoch: Callable[[int, float], None]) -> TrainingRun:
        """Train by the recipe; `on_epoch` is called with the steps done and the mean loss."""
        losses: list[float] = []
        epoch_seconds: list[float] = []
        for epoch in range(self.recipe.epochs):
            start = time.perf_counter()
            epoch_losses = [
                self.step(images.to(self.device), labels.to(self.device))
                for images, labels in batches(data, self.recipe, epoch)
            ]
            # Reading the losses waits for the device; once per epoch costs nothing.
            values = torch.stack(epoch_losses).tolist()
            epoch_seconds.append(time.perf_counter() - start)
            losses += values
            on_epoch(len(values), sum(values) / len(values))
        return TrainingRun(losses, self.accuracy(data.test_images, data.test_labels), epoch_seconds)

    def step_milliseconds(self, data: DigitData, *, steps: int, rounds: int = 5) -> float:
        """Time of a steady full-batch step, the device's work included.

        The mean of `steps` steps in the fastest of `rounds` rounds: what other programs on the
        machine take meanwhile should not count. The first round warms up.
        """
        images, labels = self._resident_batch(data)
        seconds = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            for _ in range(steps):
                self.step(images, labels)
            self._synchronize()
            seconds.append(time.perf_counter() - start)
        return 1e3 * min(seconds[1:]) / steps

    def step_cost(self, data: DigitData, *, steps: int) -> StepCost:
        """Count the GPU work of steady full-batch steps."""
        images, labels = self._resident_batch(data)
        self.step(images, labels)
        with torchvk_compile.audit() as audit:
            for _ in range(steps):
                self.step(images, labels)
        with torchvk_compile.audit() as apart:
            # Reading a count submits what is pending.
            self.step(images, labels, after_graph=lambda: apart.submissions)
        return StepCost(
            dispatches=audit.dispatches / steps,
            submissions=audit.submissions / steps,
            graph_calls=audit.graph_calls / steps,
            submissions_per_graph_call=apart.submissions / max(apart.graph_calls, 1),
        )

    def _resident_batch(self, data: DigitData) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = next(batches(data, self.recipe, epoch=0))
        return images.to(self.device), labels.to(self.device)

    def _synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.vk.synchronize(self.device)


def batches(
    data: DigitData, recipe: Recipe, epoch: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of one epoch in their fixed random order; the last one may be smaller."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(len(data.train_labels), generator=generator)
    for chosen in order.split(recipe.batch_size):
        yield data.train_images[chosen], data.train_labels[chosen]


def max_loss_gap(ours: TrainingRun, reference: TrainingRun, steps: int = 20) -> float:
    """Largest relative difference of the two runs' losses over the first steps."""
    pairs = list(zip(ours.losses, reference.losses))[:steps]
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)
