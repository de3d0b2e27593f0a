"""Running jobs for another process: one request per line of standard input, one answer per line.

In: JSON requests (open, sample, check, train, close). Out: JSON answers, ``{"failed": ...}`` where something raised.
Forbidden: ending before standard input does; answers that are not one line.

    python -c "import sys; sys.path.append(DIRECTORY); from workloads.serve import main; main()" MODULE DEVICE [BACKEND]
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from .jobs import Job, build
from .training import INSTANCES, Compile, compiler, train


def main() -> None:
    """Serve until standard input ends.

    Arguments: the module that brings the device, the device's name, a backend of torch.compile if not eager.
    """
    module_name, device = sys.argv[1:3]
    backend = sys.argv[3] if len(sys.argv) > 3 else None
    # What the module or the driver prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module = importlib.import_module(module_name)
    server = _Server(device, compiler(backend), _synchronization(module, device))
    ready = {"ready": getattr(module, "__version__", ""), "device": _device_name(module, device)}
    print(json.dumps(ready), file=answers, flush=True)
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32, as for everybody else
    with torch._dynamo.config.patch(recompile_limit=INSTANCES):
        for line in sys.stdin:
            try:
                answer = server.answer(json.loads(line))
            except Exception as error:
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


def _synchronization(module: Any, device: str) -> Callable[[], None]:
    for place in (getattr(torch, device, None), module):
        synchronize = getattr(place, "synchronize", None)
        if synchronize is not None:
            return synchronize
    raise RuntimeError(f"neither torch.{device} nor its module has synchronize()")


def _device_name(module: Any, device: str) -> str:
    """The physical device behind the torch device, or an empty text where nobody tells."""
    for place in (getattr(torch, device, None), module):
        name = getattr(place, "get_device_name", None)
        if name is not None:
            return str(name(0))
    return ""


class _Server:
    def __init__(self, device: str, compile: Compile, synchronize: Callable[[], None]) -> None:
        self._device = device
        self._compile = compile
        self._synchronize = synchronize
        self._jobs: dict[str, Job] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        kind = request["do"]
        if kind == "open":
            return self._open(request["job"], request["case"])
        if kind == "sample":
            return {"seconds": self._sample(self._jobs[request["job"]], request["calls"])}
        if kind == "check":
            return self._jobs[request["job"]].check()
        if kind == "close":
            self._jobs.pop(request["job"], None)
            return {}
        if kind == "train":
            data = torch.load(request["data"])
            return train(request["case"], data, self._device, self._compile, self._synchronize)
        raise ValueError(f"unknown request {kind!r}")

    def _open(self, name: str, case: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        job = build(case, self._device, self._compile)
        job.step()
        self._synchronize()
        first_seconds = time.perf_counter() - start
        self._jobs[name] = job
        return {
            "first_seconds": first_seconds,
            "moved_bytes": job.moved_bytes,
            "operations": job.operations,
        }

    def _sample(self, job: Job, calls: int) -> float:
        self._synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            job.step()
        self._synchronize()
        return time.perf_counter() - start
