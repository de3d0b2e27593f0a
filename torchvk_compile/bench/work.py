"""What compiled graphs have to move and compute, kernel by kernel.

In: the plans of a job. Out: plain data for the results. Forbidden: estimating time (`prediction` does).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from torchvk_compile.plan.executor import CompiledPlan

_STATISTICS = {
    "VGPRs": "vgprs",
    "Spilled SGPRs": "spilled_sgprs",
    "Spilled VGPRs": "spilled_vgprs",
    "LDS size": "shared_bytes",
    "Subgroups per SIMD": "subgroups_per_simd",
    "Instructions": "instructions",
    "Inverse Throughput": "cycles_per_subgroup",
}
"""What RADV reports of a kernel, as far as predictions use it, and what it is called here."""


def kernels_of(plans: Iterable[CompiledPlan]) -> list[dict[str, Any]]:
    """Every dispatch of compiled graphs: bytes and operations as `codegen.costs` has them, workgroups.

    Plans of eager operators (which prepare the work) and of varying sizes are left out.
    """
    found = []
    for plan in (compiled.plan for compiled in compiled_graphs(plans)):
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


def compiled_graphs(plans: Iterable[CompiledPlan]) -> list[CompiledPlan]:
    """Those plans that torch.compile made, for fixed sizes; the graphs of eager operators have no number."""
    return [p for p in plans if not p.plan.symbols and not p.plan.name.startswith("graph_")]


def statistics_of(plans: Iterable[CompiledPlan]) -> dict[str, dict[str, Any]]:
    """What RADV says about every kernel, by plan and kernel name. Raises VulkanError where the driver says nothing."""
    found = {}
    for compiled in compiled_graphs(plans):
        for kernel, report in compiled.pipeline_statistics().items():
            numbers = {
                name: report["statistics"].get(theirs) for theirs, name in _STATISTICS.items()
            }
            found[f"{compiled.plan.name}.{kernel}"] = numbers | {
                "subgroup_size": report["subgroup_size"],
                "loops": any(map(has_loop, report["representations"].values())),
            }
    return found


def has_loop(isa: str) -> bool:
    """Whether an RDNA program jumps back: a branch to a label that stands above it."""
    labels: set[str] = set()
    for line in isa.splitlines():
        label = re.match(r"\s*(BB\d+):", line)
        if label:
            labels.add(label[1])
        jump = re.search(r"\bs_c?branch\w*\s+(BB\d+)", line)
        if jump and jump[1] in labels:
            return True
    return False
