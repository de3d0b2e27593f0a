"""Compile Winograd's kernels for the device in use and print what the driver made of them, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by direction, dtype and kernel on
standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

from torchvk_compile.codegen.winograd import WinogradConfig
from torchvk_compile.lowering import convolution
from torchvk_compile.plan.executor import loaded_plans

aten = torch.ops.aten


def _forward(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, bias, padding=1).relu()


def _input(y: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mask = [True, False, False]
    settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return aten.convolution_backward(y, y, w, None, *settings, mask)[0]


def _take(default: Any, others: Callable[[], Sequence[Any]], problem: Any) -> Any:
    return next(other for other in others() if isinstance(other, WinogradConfig))


def main() -> None:
    """Print ``{"<direction> <dtype> <kernel>": statistics}``."""
    # The method is chosen here, which Inductor's graph cache cannot know.
    inductor_config.force_disable_caches = True
    convolution.chosen = _take
    result = {}
    for name, function in (("forward", _forward), ("input", _input)):
        for dtype in (torch.float32, torch.float16):
            torch._dynamo.reset()
            others = loaded_plans()
            sizes = (8, 64, 56, 56), (64, 64, 3, 3), (64,)
            values = [torch.empty(size, dtype=dtype, device="vk") for size in sizes]
            torch.compile(function, backend="torchvk", dynamic=False)(*values)
            for plan in loaded_plans():
                if plan not in others:
                    for kernel, report in plan.pipeline_statistics().items():
                        result[f"{name} {dtype} {kernel}"] = report["statistics"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
