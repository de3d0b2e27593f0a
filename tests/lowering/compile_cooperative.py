"""Compile every tile of cooperative matrices for the device in use and print what the driver made of it, as JSON.

In: the environment selects the device, usually RADV's null hardware of a card that has matrix units. Out: statistics
by tile, layout and dtype on standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

from torchvk_compile.codegen.cooperative import CooperativeConfig, fragment_of
from torchvk_compile.codegen.gemm_config import cooperative_tiles
from torchvk_compile.device import profile
from torchvk_compile.lowering import matmul
from torchvk_compile.plan.executor import loaded_plans

LAYOUTS = {
    "nn": lambda a, b, bias: F.gelu(a @ b + bias),
    "nt": lambda a, b, bias: F.relu(a @ b.t() + bias),
    "tn": lambda a, b, bias: a.t() @ b,
    "strided": lambda a, b, bias: a[:, ::2] @ b[::2],
}
SIZE = 512


def _statistics(config: CooperativeConfig, layout: str) -> dict[str, Any]:
    torch._dynamo.reset()
    others = loaded_plans()
    matmul.choose_config = lambda *_, **__: config  # type: ignore[assignment]
    a, b = (torch.empty(SIZE, SIZE, dtype=torch.float16, device="vk") for _ in range(2))
    compiled = torch.compile(LAYOUTS[layout], backend="torchvk", dynamic=False)
    compiled(a, b, torch.empty(SIZE, dtype=torch.float16, device="vk"))
    (found,) = (
        kernel
        for plan in loaded_plans()
        if plan not in others
        for kernel in plan.pipeline_statistics().values()
    )
    return found["statistics"] | {"subgroup": found["subgroup_size"]}


def main() -> None:
    """Print ``{"<tile>; <layout>": statistics}``."""
    # The tile is chosen here, which Inductor's graph cache cannot know.
    inductor_config.force_disable_caches = True
    device = profile(0)
    tiles = cooperative_tiles(device, fragment_of(device, torch.float16), products=1)
    result = {
        f"{tile}; {layout}": _statistics(tile, layout) for tile in tiles for layout in LAYOUTS
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
