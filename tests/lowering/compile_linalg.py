"""Compile every kernel of linear algebra for the device in use and print what the driver made of it, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by kernel and
dtype on standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from torchvk_compile.backend import register_with_inductor
from torchvk_compile.plan.executor import loaded_plans

SIZE = 96
_ops = torch.ops.torchvk

KERNELS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cholesky": lambda a, whole: _ops.cholesky(a),
    "cholesky, complex": lambda a, whole: _ops.cholesky(a.view(4, 48, 48, 2)),
    "lu": lambda a, whole: _ops.lu(a, True),
    "lu, complex": lambda a, whole: _ops.lu(a.view(4, 48, 48, 2), True),
    "permutation": lambda a, whole: _ops.permutation(whole, SIZE, False),
    "triangular": lambda a, whole: _ops.solve_triangular(a, a, True, False),
    "triangular, one column": lambda a, whole: _ops.solve_triangular(a, a[..., :1], True, False),
    "triangular, complex": lambda a, whole: _ops.solve_triangular(
        a.view(4, 48, 48, 2), a.view(4, 48, 48, 2), True, False
    ),
    "qr": lambda a, whole: _ops.qr(a),
    "reflect": lambda a, whole: _ops.reflect(a, a[..., 0], a, True),
    "reflect, one column": lambda a, whole: _ops.reflect(a, a[..., 0], a[..., :1], True),
    "ldl": lambda a, whole: _ops.ldl(a),
    "ldl_solve": lambda a, whole: _ops.ldl_solve(a, whole, a),
    "squaring": lambda a, whole: _ops.squaring(a, whole[:, 0].contiguous()),
    "eigh": lambda a, whole: _ops.eigh(a, True),
    "eig": lambda a, whole: _ops.eig(a, True),
    "svd": lambda a, whole: _ops.svd(a, True),
}


def _statistics(kernel: str, dtype: torch.dtype) -> list[dict[str, Any]]:
    others = loaded_plans()
    matrices = torch.empty(2, SIZE, SIZE, dtype=dtype, device="vk")
    whole = torch.empty(2, SIZE, dtype=torch.int32, device="vk")
    torch._dynamo.reset()
    torch.compile(KERNELS[kernel], backend="torchvk", dynamic=False)(matrices, whole)
    return [
        found["statistics"]
        for plan in loaded_plans()
        if plan not in others
        for found in plan.pipeline_statistics().values()
    ]


def main() -> None:
    """Print ``{"<kernel> <dtype> <number>": statistics}``."""
    torch.empty(0, device="vk")  # opens the device, whose own operators the lowerings name
    register_with_inductor()
    result = {}
    for kernel in KERNELS:
        for dtype in (torch.float32, torch.float64):
            for i, statistics in enumerate(_statistics(kernel, dtype)):
                result[f"{kernel} {dtype} {i}"] = statistics
    print(json.dumps(result))


if __name__ == "__main__":
    main()
