"""What TorchVK costs besides the kernels: submissions, host time of calls, start-up, memory.

In: a device (`TORCHVK_DEVICE` chooses). Out: a table and, with ``--json FILE``, the raw samples. Forbidden: asserting
anything; these are figures, to be read beside the goals printed with them.

    python benchmarks/overheads.py --json build/overheads.json
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torchvk_compile
from torchvk_compile.demo.digits import load
from torchvk_compile.demo.training import Recipe, Trainer, build_model
from torchvk_compile.plan.executor import CompiledPlan, loaded_plans
from torchvk_compile.plan.graph_plan import GraphPlan

_RECIPE = Recipe(epochs=1, batch_size=64)
_DISPATCHES = (1, 10, 50, 100)
_CALLS_IN_A_ROW = 20
_EAGER_CALLS: dict[str, tuple[float | None, Callable[[torch.Tensor], Any]]] = {
    "x + 1": (25, lambda x: x + 1),
    "x * x": (None, lambda x: x * x),
    "x.add_(1)": (None, lambda x: x.add_(1)),
    "x.sum()": (None, lambda x: x.sum()),
    "x @ x": (None, lambda x: x @ x),
    "x.view(-1)": (8, lambda x: x.view(-1)),
    "x.t()": (8, lambda x: x.t()),
    "x.expand(2, 32, 32)": (8, lambda x: x.expand(2, 32, 32)),
}
"""Eager calls of a matrix of 32 x 32, with the host time in microseconds that is the goal."""
_FIRST_STEP = """
import time
start = time.perf_counter()
import torch._inductor.compile_fx
from torchvk_compile.demo.digits import load
from torchvk_compile.demo.training import Recipe, Trainer, build_model
data, recipe = load(None), Recipe(epochs=1, batch_size=64)
trainer = Trainer(build_model(data.train_images.shape[1], recipe).to("vk"), recipe, "torchvk")
images, labels = data.train_images[:64].to("vk"), data.train_labels[:64].to("vk")
ready = time.perf_counter()
trainer.step(images, labels).item()
print(ready - start, time.perf_counter() - ready)
"""


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the raw samples there")
    arguments = parser.parse_args()
    results = {
        "device": torch.vk.get_device_name(),  # type: ignore[attr-defined]
        "torch": torch.__version__,
        "submissions": _submissions(),
        "replay": _replay(),
        "eager": _eager(),
        "guarded_call": _guarded_call(),
        "start": _start(),
        "memory": _memory(),
    }
    _print(results)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _trainer() -> tuple[Trainer, torch.Tensor, torch.Tensor]:
    data = load(None)
    model = build_model(data.train_images.shape[1], _RECIPE).to("vk")
    trainer = Trainer(model, _RECIPE, "torchvk")
    images, labels = data.train_images[:64].to("vk"), data.train_labels[:64].to("vk")
    for _ in range(3):
        trainer.step(images, labels).item()
    return trainer, images, labels


def _submissions() -> dict[str, float]:
    trainer, images, labels = _trainer()
    with torchvk_compile.audit() as audit:
        for _ in range(10):
            trainer.step(images, labels)
    return {
        "per_graph_call": audit.submissions / audit.graph_calls,
        "graph_calls_per_step": audit.graph_calls / 10,
    }


def _chain(length: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that compiles to `length` dispatches: products are not fused with each other."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for step in range(length):
            x = (x @ x).clamp(-1, 1) + step
        return x

    return run


def _replay() -> dict[str, dict[str, Any]]:
    """Host time of a call of a compiled graph's plan, tensors given, in microseconds."""
    found = {}
    for length in _DISPATCHES:
        torch._dynamo.reset()
        x = torch.ones(8, 8, device="vk")
        before = set(loaded_plans())
        torch.compile(_chain(length), backend="torchvk")(x)
        (plan,) = set(loaded_plans()) - before
        samples = []
        for _ in range(300):
            start = time.perf_counter()
            plan((x,))
            samples.append(1e6 * (time.perf_counter() - start))
            torch.vk.synchronize()  # type: ignore[attr-defined]
        found[str(len(plan.plan.steps))] = {
            "median_us": statistics.median(samples[50:]),
            "minimum_us": min(samples[50:]),
            "goal_us": 60 + len(plan.plan.steps),
        }
    return found


def _times_in_a_row(call: Callable[[], Any]) -> dict[str, float]:
    """Host time of a call in microseconds, of rows of calls between which the device is waited for."""
    samples = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(_CALLS_IN_A_ROW):
            call()
        samples.append(1e6 * (time.perf_counter() - start) / _CALLS_IN_A_ROW)
        torch.vk.synchronize()  # type: ignore[attr-defined]
    return {"median_us": statistics.median(samples[20:]), "minimum_us": min(samples[20:])}


def _eager() -> dict[str, dict[str, Any]]:
    """Host time of eager calls, submissions included, on the device and on the CPU, in microseconds."""
    found = {}
    for name, (goal, call) in _EAGER_CALLS.items():
        x, on_cpu = torch.ones(32, 32, device="vk"), torch.ones(32, 32)
        device = _times_in_a_row(functools.partial(call, x))
        found[name] = device | {
            "cpu": _times_in_a_row(functools.partial(call, on_cpu)),
            "goal_us": goal,
        }
    return found


def _guarded_call() -> dict[str, Any]:
    """What a call of ``x + y``, compiled, costs the host beyond Dynamo's part, in microseconds.

    Dynamo's part is what a function that returns its argument costs, compiled with Dynamo's backend ``eager``.
    """
    x, y = torch.ones(1000, device="vk"), torch.ones(1000, device="vk")
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: x + y, backend="torchvk")
    guarded = torch.compile(lambda x, y: x.detach(), backend="eager")
    view = _times_in_a_row(x.detach)
    with_guards = _times_in_a_row(lambda: guarded(x, y))
    whole = _times_in_a_row(lambda: compiled(x, y))
    dynamo = {name: with_guards[name] - view[name] for name in view}
    beyond = {name: whole[name] - dynamo[name] for name in whole}
    return beyond | {"whole": whole, "dynamo": dynamo, "goal_us": 30}


def _start() -> dict[str, Any]:
    """Seconds to the end of the first compiled training step, in a first and in later processes."""
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {
            "TORCHVK_CACHE_DIR": str(Path(directory) / "torchvk"),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(directory) / "inductor"),
        }
        runs = []
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", _FIRST_STEP],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            imports, first_step = map(float, done.stdout.split()[-2:])
            runs.append({"imports_s": imports, "first_step_s": first_step})
    return {"first_process": runs[0], "later_processes": runs[1:]}


def _memory() -> dict[str, float]:
    """Peak of one training step beside the most that its tensors hold at a time, in bytes.

    Parameters, optimizer state, gradients and saved activations count while Python holds them, results and
    intermediates of a graph from the kernel that writes them, intermediates to the kernel that reads them last.
    """
    trainer, images, labels = _trainer()
    live = []
    run_plan = CompiledPlan.__call__

    def run_and_count(plan: CompiledPlan, *arguments: Any) -> Any:
        held = torch.vk.memory_allocated()  # type: ignore[attr-defined]
        live.append(held + _most_alive(plan.plan))
        return run_plan(plan, *arguments)

    torch.vk.synchronize()  # type: ignore[attr-defined]
    torch.vk.reset_peak_memory_stats()  # type: ignore[attr-defined]
    with unittest.mock.patch.object(CompiledPlan, "__call__", run_and_count):
        trainer.step(images, labels)
    peak = torch.vk.max_memory_allocated()  # type: ignore[attr-defined]
    return {"peak_bytes": peak, "live_bytes": max(live), "ratio": peak / max(live)}


def _most_alive(plan: GraphPlan) -> int:
    """The most bytes that a plan's intermediates and results hold after any of its steps; sizes must be known."""
    lives = [(buffer.first, buffer.last, int(buffer.nbytes)) for buffer in plan.arena]
    for output in plan.outputs:
        first = min(i for i, step in enumerate(plan.steps) if output.name in step.writes)
        nbytes = math.prod(map(int, output.shape)) * getattr(torch, output.dtype).itemsize
        lives.append((first, len(plan.steps), nbytes))
    return max(
        sum(nbytes for first, last, nbytes in lives if first <= step <= last)
        for step in range(len(plan.steps))
    )


def _print(results: dict[str, Any]) -> None:
    table = Table(title=f"Overheads on {results['device']}, torch {results['torch']}")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("goal", justify="right")
    table.add_row(
        "submissions per graph call", f"{results['submissions']['per_graph_call']:.2f}", "at most 1"
    )
    for dispatches, replay in results["replay"].items():
        table.add_row(
            f"replay of {dispatches} dispatches, host", _microseconds(replay), _goal(replay)
        )
    for name, eager in results["eager"].items():
        cpu = eager["cpu"]["median_us"]
        table.add_row(
            f"eager {name}, host (on the CPU {cpu:.1f} µs)", _microseconds(eager), _goal(eager)
        )
    guarded = results["guarded_call"]
    table.add_row(
        f"compiled x + y, beyond Dynamo's {guarded['dynamo']['median_us']:.0f} µs",
        _microseconds(guarded),
        _goal(guarded),
    )
    first = results["start"]["first_process"]["first_step_s"]
    later = statistics.median(run["first_step_s"] for run in results["start"]["later_processes"])
    imports = statistics.median(run["imports_s"] for run in results["start"]["later_processes"])
    table.add_row("imports of torch, Inductor and TorchVK", f"{imports:.1f} s", "")
    table.add_row("first step, first process", f"{first:.1f} s", "")
    table.add_row(
        "first step, later process", f"{later:.1f} s ({first / later:.1f}x less)", "4x less"
    )
    table.add_row("peak memory / live tensors", f"{results['memory']['ratio']:.2f}", "1.2")
    Console().print(table)


def _microseconds(times: dict[str, Any]) -> str:
    return f"{times['median_us']:.1f} µs (minimum {times['minimum_us']:.1f})"


def _goal(times: dict[str, Any]) -> str:
    return "" if times["goal_us"] is None else f"{times['goal_us']} µs"


if __name__ == "__main__":
    main()
