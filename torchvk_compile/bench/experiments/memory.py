"""E5: the same training with less and less video memory.

In: models and limits. Out: one task per model, plain and with recomputed activations. Forbidden: see the package.
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchvk_compile.bench.measure import Context, Task
from torchvk_compile.bench.timing import LocalSampler, reason_of
from torchvk_compile.bench.ways import LocalWay
from torchvk_compile.bench.workloads import Training, random_batch

_MIB = 1 << 20
_TIMELINE_STEPS = 3


def memory_tasks(context: Context) -> Iterator[Task]:
    """Every workload of the plan, without and with recomputation."""
    for name, model in context.settings["workloads"].items():
        for recompute in (False, True):
            case = {
                "workload": name,
                "recompute": recompute,
                "seed": context.settings["seed"],
                **model,
            }
            how = "recomputed activations" if recompute else "plain"
            yield Task(case, functools.partial(_shrink, case), f"{name}, {how}")


def _shrink(case: Mapping[str, Any], context: Context) -> dict[str, Any]:
    return _Shrinking(context, case).run()


class _Shrinking:
    """One model that trains again and again, under other limits."""

    def __init__(self, context: Context, case: Mapping[str, Any]) -> None:
        self._context = context
        self._case = case
        self._steps = context.settings["steps"]
        way = context.field.ways["vk-compiled"]
        assert isinstance(way, LocalWay)
        self._way = way
        self._training = Training(case, way.device, way.compiler())
        self._batch = tuple(tensor.to(way.device) for tensor in random_batch(case))

    def run(self) -> dict[str, Any]:
        """Without a limit, then the plan's limits and the bisection for the least that works."""
        free = self._attempt(None)
        if free["outcome"] != "fits":
            return {"failure": f"does not train without a limit: {free['outcome']}"}
        peak = math.ceil(free["reserved_peak_bytes"] / _MIB)
        attempts = [
            self._attempt(limit)
            for limit in sorted({*self._context.settings["limits_mib"], peak}, reverse=True)
        ]
        failed = [a["limit_mib"] for a in attempts if a["outcome"] != "fits"]
        fitting = [a["limit_mib"] for a in attempts if a["outcome"] == "fits"]
        low, high = max(failed, default=0), min(fitting, default=None)
        if high is not None:
            for _ in range(self._context.settings["bisection_steps"]):
                middle = (low + high) // 2
                if middle in (low, high):
                    break
                attempts.append(self._attempt(middle))
                low, high = (low, middle) if attempts[-1]["outcome"] == "fits" else (middle, high)
        return {
            "unlimited": free,
            "attempts": attempts,
            "least_mib": high,
            "at_least": None if high is None else self._compare(high),
            "timeline": self._timeline(),
        }

    def _attempt(self, limit_mib: int | None) -> dict[str, Any]:
        """Train some steps from the first weights under a limit. Afterwards there is none."""
        self._context.tick("no limit" if limit_mib is None else f"{limit_mib} MiB")
        entry: dict[str, Any] = {"limit_mib": limit_mib}
        self._training.reset()
        self._set_limit(limit_mib)
        torch.vk.reset_peak_memory_stats(self._way.device)  # type: ignore[attr-defined]
        try:
            losses = [self._step() for _ in range(self._steps)]
            entry |= {"outcome": "fits", "losses": [float(loss.cpu()) for loss in losses]}
            self._way.synchronize()
        except torch.OutOfMemoryError as error:
            entry |= {"outcome": "out of memory", "message": str(error).splitlines()[0]}
        except Exception as error:
            entry |= {"outcome": "failed", "message": reason_of(error)}
        stats = torch.vk.memory_stats(self._way.device)  # type: ignore[attr-defined]
        entry |= {
            "allocated_peak_bytes": stats["allocated_bytes.all.peak"],
            "reserved_peak_bytes": stats["reserved_bytes.all.peak"],
        }
        self._set_limit(None)
        if entry["outcome"] != "fits":
            entry["goes_on"] = self._goes_on()
        return entry

    def _goes_on(self) -> bool:
        """Whether the same process trains on after an error."""
        gc.collect()  # a failed backward pass may sit in a cycle, with its tensors
        try:
            self._training.reset()
            return math.isfinite(float(self._step().cpu()))
        except Exception:
            return False

    def _compare(self, limit_mib: int) -> dict[str, list[float]]:
        """Seconds per step without a limit and under one, in turn."""
        sampled: dict[str, list[float]] = {"unlimited": [], "limited": []}
        self._training.reset()
        for index in range(self._context.settings["rounds"] + self._context.settings["warm_up"]):
            order = [("unlimited", None), ("limited", limit_mib)]
            for name, limit in order if index % 2 == 0 else order[::-1]:
                self._set_limit(limit)
                self._step()  # the caches of the other side are gone
                sampled[name].append(self._sample())
        self._set_limit(None)
        warm_up = self._context.settings["warm_up"]
        return {name: seconds[warm_up:] for name, seconds in sampled.items()}

    def _sample(self) -> float:
        return LocalSampler(self._step, self._way.synchronize).sample(1)

    def _timeline(self) -> list[dict[str, Any]]:
        """Memory after each part of a step, as the allocator has it."""
        found = []
        self._training.reset()

        def look(phase: str) -> None:
            stats = torch.vk.memory_stats(self._way.device)  # type: ignore[attr-defined]
            found.append(
                {
                    "phase": phase,
                    "allocated_bytes": stats["allocated_bytes.all.current"],
                    "reserved_bytes": stats["reserved_bytes.all.current"],
                }
            )

        look("start")
        for _ in range(_TIMELINE_STEPS):
            loss = self._training.loss(*self._batch)
            look("forward")
            loss.backward()
            del loss
            look("backward")
            self._training.update()
            self._training.optimizer.zero_grad()
            look("update")
        return found

    def _step(self) -> torch.Tensor:
        return self._training.step(*self._batch)

    def _set_limit(self, limit_mib: int | None) -> None:
        torch.vk.synchronize(self._way.device)  # type: ignore[attr-defined]
        torch.vk.empty_cache()  # type: ignore[attr-defined]
        nbytes = None if limit_mib is None else limit_mib * _MIB
        torch.vk.set_memory_limit(nbytes, self._way.device)  # type: ignore[attr-defined]
