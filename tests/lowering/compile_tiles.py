"""Compile every tiling for the device in use and print what the driver made of it, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by tiling and
layout on standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

from torchvk_compile.codegen import gemm_config
from torchvk_compile.lowering import matmul
from torchvk_compile.plan.executor import loaded_plans

LAYOUTS = {
    "nn": lambda a, b, bias: F.gelu(a @ b + bias),
    "nt": lambda a, b, bias: F.relu(a @ b.t() + bias),
    "tn": lambda a, b, bias: a.t() @ b,
    "strided": lambda a, b, bias: a[:, ::2] @ b[::2],
}
TILES = ("LARGE", "HIGH", "BROAD", "MEDIUM", "SLICED", "SMALL", "SMALL_SLICED", "TALL", "WIDE")
SIZE = 512


def _statistics(config: gemm_config.TileConfig, layout: str, dtype: torch.dtype) -> dict[str, Any]:
    torch._dynamo.reset()
    others = loaded_plans()
    matmul.choose_config = lambda *_, **__: config  # type: ignore[assignment]
    a, b = (torch.empty(SIZE, SIZE, dtype=dtype, device="vk") for _ in range(2))
    compiled = torch.compile(LAYOUTS[layout], backend="torchvk", dynamic=False)
    compiled(a, b, torch.empty(SIZE, dtype=dtype, device="vk"))
    (found,) = (
        kernel["statistics"]
        for plan in loaded_plans()
        if plan not in others
        for kernel in plan.pipeline_statistics().values()
        if kernel["statistics"]["LDS size"]
    )
    return found


def main() -> None:
    """Print ``{"<tile> <layout> <dtype>": statistics}``."""
    # The tiling is chosen here, which Inductor's graph cache cannot know.
    inductor_config.force_disable_caches = True
    result = {}
    for name in TILES:
        config = getattr(gemm_config, name)
        for layout in LAYOUTS:
            result[f"{name} {layout} float32"] = _statistics(config, layout, torch.float32)
        result[f"{name} nn float16"] = _statistics(config, "nn", torch.float16)
    for dtype in (torch.float64, torch.int64, torch.int32):
        kind = str(dtype).removeprefix("torch.")
        result[f"SMALL tn {kind}"] = _statistics(gemm_config.SMALL, "tn", dtype)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
