"""Compiling the experiments for the RX 5600 XT that is not there.

In: cases. Out: what each would launch on the card, and what its shader compiler says of every kernel.
Forbidden: reading results; RADV's null hardware compiles and executes nothing.

Mesa's RADV driver offers a Navi 10 without the card when ``RADV_FORCE_FAMILY=navi10`` is set. The choice of a driver
belongs to a process, so this module runs itself in a new one: ``python -m torchvk_compile.bench.navi10 < cases.json``.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchvk_compile import config
from torchvk_compile.bench.ways import LocalWay
from torchvk_compile.bench.work import kernels_of, statistics_of
from torchvk_compile.bench.workloads import INSTANCES, Training, build, random_batch
from torchvk_compile.errors import UsageError
from torchvk_compile.inspection.target import find_target, target_environment
from torchvk_compile.plan.executor import loaded_plans

_SECONDS = 1_800


def compile_for_navi10(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What every case launches on a Navi 10, in the order of `cases`.

    Args:
        cases: of `workloads.build`; a key ``without`` names mechanisms to switch off.

    Returns:
        Per case: case, kernels (`work.kernels_of`, with statistics), reserved_peak_bytes; or failure.

    Raises:
        TorchVKError: without RADV.
        UsageError: when the process fails.
    """
    environment = os.environ | target_environment(*find_target("navi10"))
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(list(cases)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise UsageError(f"compiling for Navi 10 failed: {' '.join(last)[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _compile_case(case: Mapping[str, Any]) -> dict[str, Any]:
    way = LocalWay("vk-compiled", "vk", "torchvk")
    before = set(loaded_plans())
    torch.vk.empty_cache()  # type: ignore[attr-defined]
    torch.vk.reset_peak_memory_stats()  # type: ignore[attr-defined]
    with config.patch(without=frozenset(case.get("without", ()))):
        if case["workload"] == "train":
            training = Training(case, way.device, way.compiler())
            inputs, targets = (tensor.to(way.device) for tensor in random_batch(case))
            training.step(inputs, targets)
        else:
            job = build(case, way.device, way.compiler())
            job.step()
    stats = torch.vk.memory_stats()  # type: ignore[attr-defined]
    plans = [plan for plan in loaded_plans() if plan not in before]
    statistics = statistics_of(plans)
    kernels = [
        kernel | {"statistics": statistics[f"{kernel['plan']}.{kernel['kernel']}"]}
        for kernel in kernels_of(plans)
    ]
    return {
        "case": dict(case),
        "kernels": kernels,
        "reserved_peak_bytes": stats.get("reserved_bytes.all.peak", 0),
    }


def main() -> None:
    """Read cases from standard input, print what was made of them."""
    torch._logging.set_logs(dynamo=logging.ERROR)
    found = []
    with torch._dynamo.config.patch(recompile_limit=INSTANCES):
        for case in json.load(sys.stdin):
            try:
                found.append(_compile_case(case))
            except Exception as error:
                found.append({"case": case, "failure": f"{type(error).__name__}: {error}"[:400]})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
