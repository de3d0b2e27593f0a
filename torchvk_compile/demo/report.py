"""What the demo found, as a table for people.

In: `DemoResult`. Out: rich output.
Forbidden: measuring anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


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
