"""What compiled graphs have to move and compute, kernel by kernel.

In: the plans of a job. Out: plain data for the results. Forbidden: estimating time (`prediction` does).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torchvk_compile.errors import VulkanError
from torchvk_compile.plan.executor import CompiledPlan

_STATISTICS = (
    "SGPRs",
    "VGPRs",
    "Spilled SGPRs",
    "Spilled VGPRs",
    "LDS size",
    "Scratch size",
    "Subgroups per SIMD",
    "Code size",
    "Instructions",
    "Latency",
    "Inverse Throughput",
)
"""What RADV reports of a kernel, as far as predictions use it."""


def kernels_of(plans: Iterable[CompiledPlan]) -> list[dict[str, Any]]:
    """Every dispatch of the plans with fixed sizes: bytes and operations as `codegen.costs` has them, invocations."""
    found = []
    for plan in (compiled.plan for compiled in plans if not compiled.plan.symbols):
        workgroup_sizes = {kernel.name: kernel.workgroup_size for kernel in plan.kernels}
        for step in plan.steps:
            found.append(
                {
                    "plan": plan.name,
                    "kernel": step.kernel,
                    "read_bytes": step.read_bytes,
                    "written_bytes": step.written_bytes,
                    "flops": step.flops,
                    "workgroups": math.prod(map(int, step.groups)),
                    "workgroup_size": workgroup_sizes[step.kernel],
                }
            )
    return found


def statistics_of(plans: Iterable[CompiledPlan]) -> dict[str, dict[str, Any]]:
    """What the driver says about every kernel, by plan and kernel name; empty where it says nothing."""
    found = {}
    for compiled in plans:
        try:
            reports = compiled.pipeline_statistics()
        except VulkanError:
            return {}
        for kernel, report in reports.items():
            numbers = {k: v for k, v in report["statistics"].items() if k in _STATISTICS}
            found[f"{compiled.plan.name}.{kernel}"] = numbers
    return found
