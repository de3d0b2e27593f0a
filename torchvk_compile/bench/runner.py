"""Running experiments: every task once, results on disk as they come, what is there already skipped.

In: a plan, the chosen experiments, a result file. Out: records. Forbidden: losing a finished task to whatever happens
later; measuring.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from torchvk_compile.bench import environment
from torchvk_compile.bench.experiments import EXPERIMENTS
from torchvk_compile.bench.measure import Context, Task
from torchvk_compile.bench.plan import Mode, Plan
from torchvk_compile.bench.records import ResultFile
from torchvk_compile.bench.summaries import quality
from torchvk_compile.bench.timing import reason_of
from torchvk_compile.bench.ways import Field
from torchvk_compile.bench.workloads import INSTANCES


@dataclasses.dataclass(frozen=True)
class Run:
    """What is to be run.

    Attributes:
        plan: read and hashed.
        mode: full or quick.
        experiments: keys, in the plan's order.
        device: the vk device under test.
        field: the ways of this machine.
        images: data by experiment.
    """

    plan: Plan
    mode: Mode
    experiments: Sequence[str]
    device: torch.device
    field: Field
    images: Mapping[str, Any]


def execute(run: Run, results: ResultFile, console: Console) -> list[str]:
    """Run everything that is not in `results` yet.

    A task that fails as a whole is recorded with its reason, and the others go on. KeyboardInterrupt passes through;
    the finished tasks are on disk then.

    Returns:
        Warnings about samples, for people.
    """
    # Dynamo warns that it ignores the profiler's mark inside every optimizer's step.
    torch._logging.set_logs(dynamo=logging.ERROR)
    facts = environment.describe(run.device)
    results.append(
        {
            "kind": "environment",
            **facts,
            "ways": list(run.field.ways),
            "absent": dict(run.field.absent),
        }
    )
    identity = {"mode": run.mode, "plan": run.plan.sha256, "environment": facts["id"]}
    warnings: list[str] = []
    with _progress(console) as progress, torch._dynamo.config.patch(recompile_limit=INSTANCES):
        for key in run.experiments:
            bar = progress.add_task(f"{key} {run.plan.experiments[key].title}", total=None, now="")
            context = Context(
                experiment=run.plan.experiments[key],
                mode=run.mode,
                field=run.field,
                device=str(run.device),
                images=run.images,
                tick=lambda text, bar=bar: progress.update(bar, now=text),  # type: ignore[misc]
            )
            tasks = list(EXPERIMENTS[key](context))
            progress.update(bar, total=len(tasks))
            for task in tasks:
                record = {"experiment": key, "case": dict(task.case), **identity}
                if not results.finished(record):
                    body = _body(task, context)
                    results.append({"kind": "result", **record, "label": task.label, **body})
                    warnings += _warnings(task, body, run.plan.method, key)
                progress.update(bar, advance=1, now=task.label)
            progress.update(bar, now="done")
    return warnings


def _body(task: Task, context: Context) -> dict[str, Any]:
    try:
        return task.run(context) | {"clocks": environment.clocks()}
    except Exception as error:
        return {"failure": reason_of(error)}


def _warnings(
    task: Task, body: Mapping[str, Any], method: Mapping[str, Any], key: str
) -> list[str]:
    found = []
    for name, way in body.get("ways", {}).items():
        if "seconds" in way:
            texts = quality(way["seconds"], method).words()
            found += [f"{key}, {task.label}, {name}: {text}" for text in texts]
        if "failure" in way:
            found.append(f"{key}, {task.label}, {name} failed: {way['failure']}")
    if "failure" in body:
        found.append(f"{key}, {task.label} failed: {body['failure']}")
    return found


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:38}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
        console=console,
    )
