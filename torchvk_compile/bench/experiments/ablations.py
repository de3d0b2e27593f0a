"""E6: one mechanism at a time switched off, each against the full system in the same run.

In: models and the names of mechanisms. Out: one timed case per model, and first steps with and without caches.
Forbidden: see the package.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchvk_compile import config
from torchvk_compile.bench.measure import Context, Task, time_ways
from torchvk_compile.bench.ways import LocalWay, LocalWork, Way

_WARM_STARTS = 2
_START_SECONDS = 300
_FIRST_STEP = """
import json, sys, time
import torch
from torchvk_compile.bench.ways import LocalWay
way = LocalWay("vk-compiled", sys.argv[1], "torchvk")
torch.zeros(1, device=way.device)
start = time.perf_counter()
work = way.open(json.loads(sys.argv[2]))
print(time.perf_counter() - start)
"""


class AblatedWay(LocalWay):
    """TorchVK compiled, with one mechanism switched off (`config.without`)."""

    def __init__(self, device: str, mechanism: str) -> None:
        super().__init__(f"without {mechanism}", device, "torchvk")
        self._mechanism = mechanism

    def open(self, case: Mapping[str, Any]) -> LocalWork:
        """See `Way`: everything is compiled in the first step, so the switch matters only here."""
        with config.patch(without={self._mechanism}):
            return super().open(case)


def ablation_tasks(context: Context) -> Iterator[Task]:
    """Every workload with every mechanism off, in one case each; then the caches."""
    settings = context.settings
    for name, model in settings["workloads"].items():
        case = {
            "workload": "train",
            "name": name,
            "seed": settings["seed"],
            "steps": settings["steps"],
            **model,
        }
        yield Task(case, functools.partial(_ablate, case), f"{name}, one mechanism off")
        if settings["caches"]:
            start = {**case, "start": "cold and warm", "steps": 1}
            yield Task(start, functools.partial(_start, start), f"{name}, first steps")


def _ablate(case: Mapping[str, Any], context: Context) -> dict[str, Any]:
    ways: dict[str, Way] = {"full": LocalWay("full", context.device, "torchvk")}
    for mechanism in context.settings["without"]:
        way = AblatedWay(context.device, mechanism)
        ways[way.name] = way
    return time_ways(context, case, ways)


def _start(case: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Seconds to the end of the first step in new processes: one with empty caches, then some with theirs."""
    seconds = []
    with tempfile.TemporaryDirectory() as directory:
        caches = {
            "TORCHVK_CACHE_DIR": str(Path(directory) / "torchvk"),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(directory) / "inductor"),
        }
        for index in range(1 + _WARM_STARTS):
            context.tick("cold start" if index == 0 else "warm start")
            done = subprocess.run(
                [sys.executable, "-c", _FIRST_STEP, context.device, json.dumps(dict(case))],
                env=os.environ | caches,
                capture_output=True,
                text=True,
                timeout=_START_SECONDS,
            )
            if done.returncode != 0:
                last = done.stderr.strip().splitlines()[-1:]
                raise RuntimeError(f"a new process failed: {' '.join(last)[-300:]}")
            seconds.append(float(done.stdout.split()[-1]))
    return {"cold_seconds": seconds[0], "warm_seconds": seconds[1:]}
