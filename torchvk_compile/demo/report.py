"""What the demo found, as a table for people and as JSON for programs.

In: `DemoResult`. Out: rich output; a JSON file that appears whole or not at all.
Forbidden: measuring anything.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from torchvk_compile.errors import UsageError


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo reports. Times are milliseconds unless the name says seconds.

    `max_loss_gap` is relative to CPU eager over the first 20 steps; `cpu_fallbacks` counts calls.
    """

    device: str
    driver: str
    versions: dict[str, str]
    data: str
    epochs: int
    batch_size: int
    test_accuracy: float
    cpu_test_accuracy: float
    max_loss_gap: float
    gpu_only: bool
    cpu_fallbacks: int
    dispatches_per_step: float
    submissions_per_step: float
    submissions_per_graph_call: float
    step_ms: dict[str, float]
    compile_seconds: float
    train_seconds: float
    peak_memory_bytes: int
    shaders: str


def show(result: DemoResult, console: Console) -> None:
    """Print the result."""
    title = f"{result.data}, {result.epochs} epochs on {result.device}"
    table = Table(title=title, show_lines=True)
    table.add_column("")
    table.add_column("Vulkan, torch.compile", justify="right")
    table.add_column("Vulkan, eager", justify="right")
    table.add_column("CPU, eager", justify="right")
    table.add_row(
        "test accuracy", f"{result.test_accuracy:.4f}", "", f"{result.cpu_test_accuracy:.4f}"
    )
    times = result.step_ms
    table.add_row(
        "time per step",
        *(f"{times[way]:.2f} ms" for way in ("compiled", "vk_eager", "cpu_eager")),
    )
    table.add_row("first 20 losses", f"within {result.max_loss_gap:.0e} of CPU", "", "")
    only = "[green]yes[/]" if result.gpu_only else "[red]no[/]"
    table.add_row("everything on the GPU", f"{only}, {result.cpu_fallbacks} CPU fallbacks", "", "")
    table.add_row(
        "per step",
        f"{result.dispatches_per_step:g} dispatches\n{result.submissions_per_step:g} submissions",
        "",
        "",
    )
    table.add_row("peak device memory", f"{result.peak_memory_bytes / 2**20:.2f} MiB", "", "")
    table.add_row("compilation", f"{result.compile_seconds:.1f} s", "", "")
    console.print(table)
    console.print(f"Driver: {result.driver}", highlight=False)
    console.print(f"Shaders (Slang and SPIR-V): {result.shaders}", highlight=False, soft_wrap=True)


def check_writable_file(path: Path) -> None:
    """Raise UsageError now rather than lose a result later."""
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")
    _probe(path.parent, path)


def check_writable_directory(directory: Path) -> None:
    """Create the directory if need be. Raise UsageError if files cannot be written into it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {directory}: {error.strerror}") from None
    _probe(directory, directory)


def _probe(directory: Path, target: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None


def write_json(result: DemoResult, path: Path) -> None:
    """Write the result atomically."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(result), file, indent=2)
            file.write("\n")
        # mkstemp files are private; a result should be as readable as any new file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
