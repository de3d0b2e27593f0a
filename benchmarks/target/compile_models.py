"""Compile one model and its training step for the device in use; print what became of every kernel, as JSON.

In: a model's name; the environment selects the device, RADV's null hardware. Out: one JSON object in the last line.
Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from models.perceptron import cnn, mlp
from models.recurrent import RecurrentModel
from models.resnet import ResNet18
from models.transformer import GPT2, ViT
from torch import nn
from torch.nn import functional

from target.assembly import main_loop, whole
from target.roofline import predict
from torchvk_compile.plan.executor import loaded_plans


@dataclass(frozen=True)
class Subject:
    """A model, its input (float images, or int64 tokens below `vocabulary`) and the number of classes."""

    make: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    vocabulary: int = 0
    target_shape: tuple[int, ...] = ()
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.AdamW(
        parameters, capturable=True, foreach=True
    )


def _momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)


SUBJECTS = {
    "MLP 784-256-128-10, batch 64": Subject(mlp, (64, 784), target_shape=(64,)),
    "CNN 32-64-64, batch 64": Subject(cnn, (64, 3, 32, 32), target_shape=(64,)),
    "ResNet-18 (CIFAR), batch 128": Subject(
        ResNet18, (128, 3, 32, 32), target_shape=(128,), optimizer=_momentum
    ),
    "ViT 6x192, patch 4, batch 64": Subject(ViT, (64, 3, 32, 32), target_shape=(64,)),
    "GPT-2 small's first 2 blocks, 4x512": Subject(
        lambda: GPT2(layers=2), (4, 512), vocabulary=50304, target_shape=(4, 512)
    ),
    "LSTM 128, 16x32": Subject(RecurrentModel, (16, 32), vocabulary=256, target_shape=(16, 32)),
}


def main() -> None:
    """Print ``{"device": ..., "kernels": [...]}`` for the model named on the command line."""
    subject = SUBJECTS[sys.argv[1]]
    kept = _train_and_infer(subject)
    kernels = [row for compiled in loaded_plans() for row in _rows(compiled)]
    print(json.dumps({"device": torch.vk.get_device_name(), "kernels": kernels}))  # type: ignore[attr-defined]
    del kept


def _train_and_infer(subject: Subject) -> list[Any]:
    """Everything that has to stay alive for its plans to be looked at."""
    model = subject.make().to("vk")
    if subject.vocabulary:
        inputs = torch.zeros(subject.input_shape, dtype=torch.int64, device="vk")
    else:
        inputs = torch.zeros(subject.input_shape, device="vk")
    targets = torch.zeros(subject.target_shape, dtype=torch.int64, device="vk")
    optimizer = subject.optimizer(model.parameters())

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    compiled = torch.compile(loss_of, backend="torchvk", dynamic=False)
    update = torch.compile(lambda: optimizer.step(), backend="torchvk", dynamic=False)
    compiled(inputs, targets).backward()
    update()
    return [model, optimizer, compiled, update]


def _rows(compiled: Any) -> list[dict[str, Any]]:
    """One row a dispatch: what the driver says of its kernel, and what it should take."""
    plan = compiled.plan
    values = tuple(8 for _ in plan.symbols)
    number = plan.sizes_at(values)
    specs = {kernel.name: kernel for kernel in plan.kernels}
    reports = compiled.pipeline_statistics()
    rows = []
    for step in plan.steps:
        report, spec = reports[step.kernel], specs[step.kernel]
        assembly = report["representations"]["Assembly"]
        loop, kernel = main_loop(assembly), whole(assembly)
        invocations = math.prod(number(g) for g in step.groups) * spec.workgroup_size
        nbytes = number(step.read_bytes) + number(step.written_bytes)
        flops = number(step.flops)
        prediction = predict(loop, kernel, invocations, nbytes, flops)
        found = report["statistics"]
        rows.append(
            {
                "kernel": step.kernel,
                "vgprs": found["VGPRs"],
                "lds": found["LDS size"],
                # RADV counts subgroups of 32 lanes.
                "waves": found["Subgroups per SIMD"] / 2,
                "spills": found["Spilled VGPRs"] + found["Spilled SGPRs"] + found["Scratch size"],
                "fused_share": loop.fused_share,
                "loop": loop.loop,
                "bytes": nbytes,
                "flops": flops,
                **asdict(prediction),
            }
        )
    return rows


if __name__ == "__main__":
    main()
