"""E3 and E4: whole trainings, and the time of one step.

In: images, a model's settings. Out: one timed case (the step) and one training per experiment.
Forbidden: see the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchvk_compile.bench.data import Images
from torchvk_compile.bench.measure import Context, Task, time_ways
from torchvk_compile.bench.timing import reason_of

_MODEL_SETTINGS = ("model", "hidden", "channels", "batch", "learning_rate", "seed")


def mnist_tasks(context: Context) -> Iterator[Task]:
    """E3: a perceptron on MNIST or what stands in for it."""
    images: Images = context.images["E3"]
    yield from _tasks(context, images, {"inputs": images.train_images.shape[1]})


def cifar_tasks(context: Context) -> Iterator[Task]:
    """E4: a convolutional network on CIFAR-10 or what stands in for it."""
    yield from _tasks(context, context.images["E4"], {})


def _tasks(context: Context, images: Images, more: Mapping[str, Any]) -> Iterator[Task]:
    settings = context.settings
    model = {name: settings[name] for name in _MODEL_SETTINGS if name in settings}
    model |= more
    step = {"workload": "train", **model}
    yield Task(step, lambda c: time_ways(c, step, c.field.of(c.settings["ways"])), "training step")
    training = {
        "training": settings["epochs"],
        "data": images.name,
        "train_images": len(images.train_labels),
        "test_images": len(images.test_labels),
        **model,
    }
    yield Task(training, lambda c: _train(c, model, images), f"training on {images.name}")


def _train(context: Context, model: Mapping[str, Any], images: Images) -> dict[str, Any]:
    """Train in every way that the plan wants trained, one after another."""
    case = {**model, "epochs": context.settings["epochs"]}
    outcomes: dict[str, Any] = {}
    for name, way in context.field.of(context.settings["trained"]).items():
        context.tick(f"{name}: training")

        def on_epoch(epoch: int, accuracy: float, name: str = name) -> None:
            context.tick(f"{name}: epoch {epoch}, accuracy {accuracy:.3f}")

        try:
            outcomes[name] = way.train(case, images.tensors(), on_epoch)
        except Exception as error:
            outcomes[name] = {"failure": reason_of(error)}
    return {"trainings": outcomes}
