"""Compile every convolution kernel in every tiling for the device in use and print what the driver made of it, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by tiling and
kind on standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from torchvk_compile.codegen import convolution_config, gemm_config
from torchvk_compile.lowering import convolution, convolution_weights
from torchvk_compile.plan.executor import loaded_plans

aten = torch.ops.aten


def _forward(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.relu(
        aten.convolution(x, w, w[:, 0, 0, 0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    )


def _backward(x: torch.Tensor, w: torch.Tensor, mask: list[bool]) -> Any:
    y = aten.convolution(x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
    return aten.convolution_backward(
        torch.ones_like(y), x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1, mask
    )


KINDS: dict[str, Callable[..., Any]] = {
    "forward": _forward,
    "input": lambda x, w: _backward(x, w, [True, False, False])[0],
    "weights": lambda x, w: _backward(x, w, [False, True, False])[1],
}


def _statistics(
    config: Any, kind: str, channels: int, memory_format: torch.memory_format, dtype: torch.dtype
) -> list[dict[str, Any]]:
    torch._dynamo.reset()
    others = loaded_plans()
    convolution.choose_config = lambda *_, **__: config  # type: ignore[assignment]
    convolution_weights.choose_config = convolution.choose_config  # type: ignore[assignment]
    x = torch.empty(4, channels, 56, 56, dtype=dtype, device="vk").contiguous(
        memory_format=memory_format
    )
    w = torch.empty(64, channels, 3, 3, dtype=dtype, device="vk").contiguous(
        memory_format=memory_format
    )
    torch.compile(KINDS[kind], backend="torchvk", dynamic=False)(x, w)
    return [
        kernel["statistics"]
        for plan in loaded_plans()
        if plan not in others
        for kernel in plan.pipeline_statistics().values()
        if kernel["statistics"]["LDS size"] > 4096
    ]


def main() -> None:
    """Print ``{"<tile> <kind> <layout>": statistics}``."""
    result = {}
    layouts = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
    for name, config in convolution_config.CONFIGS.items():
        for kind in KINDS:
            for layout, memory_format in layouts.items():
                found = _statistics(config, kind, 64, memory_format, torch.float32)
                for i, statistics in enumerate(found):
                    result[f"{name} {kind} {layout} {i}"] = statistics
    for layout, memory_format in layouts.items():
        found = _statistics(gemm_config.BROAD, "forward", 3, memory_format, torch.float32)
        result[f"broad three channels {layout}"] = found[0]
    for dtype in (torch.float16, torch.bfloat16):
        found = _statistics(gemm_config.BROAD, "forward", 64, torch.channels_last, dtype)
        result[f"broad forward nhwc {dtype}"] = found[0]
    found = _statistics(gemm_config.SMALL, "forward", 64, torch.contiguous_format, torch.float64)
    result["small forward nchw float64"] = found[0]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
