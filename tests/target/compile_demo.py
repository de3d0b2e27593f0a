"""Compile every kernel of the demo for the device in use and print what the driver made of them, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by kernel on standard output.
Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json

import torch

from torchvk_compile.demo.digits import DigitData, load
from torchvk_compile.demo.training import Recipe, Trainer, build_model
from torchvk_compile.errors import VulkanError
from torchvk_compile.plan.executor import loaded_plans


def _compile_everything(data: DigitData, recipe: Recipe) -> Trainer:
    model = build_model(data.train_images.shape[1], recipe).to("vk")
    trainer = Trainer(model, recipe, "torchvk")
    for size in (recipe.batch_size, 7):
        trainer.step(data.train_images[:size].to("vk"), data.train_labels[:size].to("vk"))
    try:
        trainer.accuracy(data.test_images, data.test_labels)
    except VulkanError:
        pass  # the graph is compiled; its count of correct answers cannot be read
    return trainer


def main() -> None:
    """Print ``{kernel: statistics}``."""
    trainer = _compile_everything(load(None), Recipe(epochs=1, batch_size=64))
    statistics = {
        f"{compiled.plan.name}.{kernel}": found["statistics"]
        for compiled in loaded_plans()
        for kernel, found in compiled.pipeline_statistics().items()
    }
    print(json.dumps({"device": torch.vk.get_device_name(), "kernels": statistics}))  # type: ignore[attr-defined]
    del trainer


if __name__ == "__main__":
    main()
