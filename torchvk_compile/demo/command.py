"""The course of the demo: check the arguments, train three ways, report.

In: `DemoOptions`. Out: the printed result, the JSON file.
Forbidden: training or formatting details (training.py, report.py).
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import torchvk_compile
from torchvk_compile import cache, config, output
from torchvk_compile.audit.session import Audit
from torchvk_compile.demo import digits, report
from torchvk_compile.demo.training import Recipe, Trainer, TrainingRun, build_model, max_loss_gap
from torchvk_compile.errors import NotGpuOnlyError, UsageError, VulkanError
from torchvk_compile.shaders import find_compiler
from torchvk_compile.versions import versions

_DEFAULT_EPOCHS = {"scikit-learn": 15, "MNIST": 3}


@dataclass(frozen=True)
class DemoOptions:
    """The command line of ``torchvk demo``; None means the default."""

    data: Path | None = None
    epochs: int | None = None
    batch_size: int = 64
    device: str = "vk"
    json: Path | None = None
    audit: Path | None = None
    dump_shaders: Path | None = None


def run(options: DemoOptions) -> report.DemoResult:
    """Run the demo and print its result.

    Before any training it raises UsageError or CorruptDataError if an argument is no good,
    VulkanError if there is no device and ShaderCompileError if there is no Slang compiler.
    """
    for file in (options.json, options.audit):
        if file is not None:
            output.check_writable_file(file)
    data = digits.load(options.data)
    device = chosen_device(options.device)
    default_epochs = next(n for name, n in _DEFAULT_EPOCHS.items() if data.name.startswith(name))
    recipe = Recipe(options.epochs or default_epochs, options.batch_size)
    find_compiler()
    shaders = _shader_directory(options)
    # Dynamo warns that it ignores the profiler mark inside every optimizer's step.
    torch._logging.set_logs(dynamo=logging.ERROR)
    with config.patch(dump_shaders=shaders):
        result, audit = _train_and_measure(data, recipe, device, shaders)
    report.show(result, Console())
    if options.audit is not None:
        output.write_json(_audit_data(audit), options.audit)
    if options.json is not None:
        output.write_json(dataclasses.asdict(result), options.json)
    return result


def _shader_directory(options: DemoOptions) -> Path:
    """Where the kernels can be read afterwards. One that was asked for must be writable."""
    chosen = options.dump_shaders or config.dump_shaders
    if chosen is not None:
        output.check_writable_directory(chosen)
        return chosen
    try:
        directory = cache.directory() / "demo-shaders"
        output.check_writable_directory(directory)
    except UsageError:
        directory = Path(tempfile.mkdtemp(prefix="torchvk-demo-shaders-"))
    return directory


def _train_and_measure(
    data: digits.DigitData, recipe: Recipe, device: torch.device, shaders: Path
) -> tuple[report.DemoResult, Audit]:
    model = build_model(data.train_images.shape[1], recipe)
    compiled = Trainer(copy.deepcopy(model).to(device), recipe, backend="torchvk")
    eager = Trainer(copy.deepcopy(model).to(device), recipe, backend=None)
    reference = Trainer(model, recipe, backend=None)

    torch.vk.reset_peak_memory_stats(device)
    with _progress() as progress:
        with torchvk_compile.audit() as audit:
            run = _train(compiled, data, progress, "Vulkan, torch.compile")
        peak_memory_bytes = torch.vk.max_memory_allocated(device)
        reference_run = _train(reference, data, progress, "CPU, eager")
    step_ms = {
        "compiled": compiled.step_milliseconds(data, steps=20),
        "vk_eager": eager.step_milliseconds(data, steps=5),
        "cpu_eager": reference.step_milliseconds(data, steps=20),
    }
    cost = compiled.step_cost(data, steps=10)
    properties = torch.vk.get_device_properties(device)
    steady_epoch_seconds = step_ms["compiled"] / 1e3 * len(run.losses) / recipe.epochs
    result = report.DemoResult(
        device=torch.vk.get_device_name(device),
        driver=f"{properties.driver_name} {properties.driver_info}",
        versions=versions(),
        data=data.name,
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        test_accuracy=run.accuracy,
        cpu_test_accuracy=reference_run.accuracy,
        max_loss_gap=max_loss_gap(run, reference_run),
        gpu_only=audit.gpu_only,
        cpu_fallbacks=sum(audit.fallbacks.values()),
        dispatches_per_step=cost.dispatches,
        submissions_per_step=cost.submissions,
        submissions_per_graph_call=cost.submissions_per_graph_call,
        step_ms=step_ms,
        # All compilation is in the first epoch: it has a batch of each size.
        compile_seconds=max(0.0, run.epoch_seconds[0] - steady_epoch_seconds),
        train_seconds=sum(run.epoch_seconds),
        peak_memory_bytes=peak_memory_bytes,
        shaders=str(shaders.absolute()),
    )
    return result, audit


def _audit_data(audit: Audit) -> dict[str, Any]:
    """The audit of the compiled training, with its certificate or the reason why there is none."""
    data: dict[str, Any] = {"audit": audit.to_dict()}
    try:
        data["certificate"] = audit.certificate().to_dict()
    except NotGpuOnlyError as error:
        data["certificate"] = None
        data["refused"] = str(error)
    return data


def _train(
    trainer: Trainer, data: digits.DigitData, progress: Progress, description: str
) -> TrainingRun:
    steps = trainer.recipe.epochs * -(-len(data.train_labels) // trainer.recipe.batch_size)
    task = progress.add_task(description, total=steps, loss="")

    def on_steps(count: int, loss: float) -> None:
        progress.update(task, advance=count, loss=f"loss {loss:.4f}")

    return trainer.train(data, on_steps)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


def chosen_device(text: str) -> torch.device:
    count = torch.vk.device_count()
    if count == 0:
        raise VulkanError(
            "no usable Vulkan device. Install your GPU's driver, or Mesa's lavapipe to run on the "
            "CPU (Debian: mesa-vulkan-drivers)"
        )
    names = ", ".join(f"vk:{i} ({torch.vk.get_device_name(i)})" for i in range(count))
    try:
        device = torch.device(text)
    except RuntimeError:
        raise UsageError(f"--device {text}: not a device; there is {names}") from None
    if device.type != "vk" or (device.index or 0) >= count:
        raise UsageError(f"--device {text}: not a Vulkan device of this machine; there is {names}")
    return torch.device("vk", device.index or 0)
