"""Training a model step by step, the same for every way of running it.

In: a case, a device, how to compile. Out: losses, accuracy and the seconds it took.
Forbidden: importing anything outside of this package but torch; branches on who competes.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .models import build_model, loss_of

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

INSTANCES = 256
"""Dynamo's limit: every case trains an optimizer of its own, and ``Adam.step`` is compiled anew for each."""

_EVALUATION_BATCH = 500


def compiler(backend: str | None) -> Compile:
    """torch.compile with a backend, for one size at a time; the identity for None, which is eager."""
    if backend is None:
        return lambda function: function
    return lambda function: torch.compile(function, backend=backend, dynamic=False)


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a code object of its own.

    Dynamo keeps what it compiled by code object, so that another size or setting would be a recompilation (and a
    dynamic shape) of the first.
    """
    copy = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class Training:
    """A model and its optimizer on a device; the loss and the update are compiled, the loop is Python's.

    Args:
        case: settings of `models.build_model`, with ``learning_rate`` (default 1e-3).
        device: a torch device string.
        compile: makes a function fast; the identity for eager ways.
    """

    def __init__(self, case: Mapping[str, Any], device: str, compile: Compile) -> None:
        self.device = device
        model = build_model(case)
        self.first_state = {k: v.clone() for k, v in model.state_dict().items()}
        self.model = model.to(device)
        self.model.train()
        # capturable keeps Adam's step counts on the device, so that an update is one graph.
        optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=case.get("learning_rate", 1e-3),
            capturable=torch.device(device).type != "cpu",
            foreach=True,
        )
        self.optimizer = optimizer

        def training_loss(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return loss_of(model, inputs, targets)

        def update() -> None:
            optimizer.step()

        def classify(inputs: torch.Tensor) -> torch.Tensor:
            return model(inputs).argmax(dim=1)

        self.loss = compile(fresh(training_loss))
        self.update = compile(fresh(update))
        self.classify = compile(fresh(classify))

    def reset(self) -> None:
        """Go back to the first weights and an optimizer that has seen nothing."""
        self.optimizer.zero_grad()
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(self.first_state[name])
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One optimizer step on tensors of the device. Returns the loss, still there."""
        loss = self.loss(inputs, targets)
        loss.backward()
        self.update()
        self.optimizer.zero_grad()
        return loss.detach()

    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Share of CPU images that are classified right, in batches of one size (the last one is filled up)."""
        self.model.eval()
        right = 0
        size = min(_EVALUATION_BATCH, len(labels))
        with torch.no_grad():
            for part, expected in zip(images.split(size), labels.split(size)):
                filled = torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])])
                found = self.classify(filled.to(self.device)).cpu()[: len(part)]
                right += int((found == expected).sum())
        self.model.train()
        return right / len(labels)


def train(
    case: Mapping[str, Any],
    data: Mapping[str, torch.Tensor],
    device: str,
    compile: Compile,
    synchronize: Callable[[], None],
    on_epoch: Callable[[int, float], None] = lambda epoch, accuracy: None,
) -> dict[str, Any]:
    """Train a classifier from its first weights and test it after every epoch.

    Batches are drawn in an order that the seed fixes; what is left over of an epoch is not used, so that every batch
    has one size. The clock runs while training, compilation included, and stands while testing.

    Args:
        case: settings of `Training`, with ``epochs`` and ``batch``.
        data: CPU tensors train_images, train_labels, test_images, test_labels.
        device, compile: see `Training`.
        synchronize: waits for the device.
        on_epoch: called after each epoch with its number, from 1, and the accuracy.

    Returns:
        losses (one per step), epochs: accuracy and seconds since the start, one each per epoch.
    """
    training = Training(case, device, compile)
    images, labels = data["train_images"], data["train_labels"]
    losses: list[torch.Tensor] = []
    seconds = 0.0
    epochs = []
    for epoch in range(case["epochs"]):
        generator = torch.Generator().manual_seed(case["seed"] * 1_000_003 + epoch)
        order = torch.randperm(len(labels), generator=generator)
        start = time.perf_counter()
        for chosen in order.split(case["batch"]):
            if len(chosen) == case["batch"]:
                batch = (images[chosen].to(device), labels[chosen].to(device))
                losses.append(training.step(*batch))
        synchronize()
        seconds += time.perf_counter() - start
        accuracy = training.accuracy(data["test_images"], data["test_labels"])
        epochs.append({"accuracy": accuracy, "seconds": seconds})
        on_epoch(epoch + 1, accuracy)
    return {"losses": [float(loss.cpu()) for loss in losses], "epochs": epochs}
