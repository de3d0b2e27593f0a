"""E1 and E2: single kernels over a range of sizes.

In: sizes, dtypes, layouts. Out: timed cases. Forbidden: see the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchvk_compile.bench.measure import Context, Task, time_ways

_COPIERS = ("vk-eager", "cuda-eager")
"""Ways whose copy speed is measured: one per device."""


def addition_tasks(context: Context) -> Iterator[Task]:
    """E1: z = x + y, and a copy of the same size for comparison."""
    for n in context.settings["sizes"]:
        yield _timed({"workload": "add", "n": n}, f"x + y, {n:,} elements")
        yield _timed({"workload": "copy", "n": n}, f"copy, {n:,} elements", only=_COPIERS)


def product_tasks(context: Context) -> Iterator[Task]:
    """E2: C = A B."""
    settings = context.settings
    for dtype in settings["dtypes"]:
        for layout in settings["layouts"]:
            for n in settings["sizes"]:
                case = {"workload": "matmul", "n": n, "dtype": dtype, "layout": layout}
                yield _timed(case, f"A B, {n} x {n}, {dtype}, {layout}")


def _timed(case: Mapping[str, Any], label: str, only: tuple[str, ...] | None = None) -> Task:
    def run(context: Context) -> dict[str, Any]:
        ways = context.field.of(only or context.settings["ways"])
        return time_ways(context, case, ways)

    return Task(case, run, label)
