"""Compile attention's tiles for the device in use and print what the driver made of them, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by head width and dtype on
standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.nn.functional as F

from torchvk_compile.plan.executor import loaded_plans

ROWS = 256


def _statistics(width: int, dtype: torch.dtype, **settings: Any) -> list[dict[str, Any]]:
    torch._dynamo.reset()
    others = loaded_plans()
    query, key, value = (
        torch.empty(1, 2, ROWS, width, dtype=dtype, device="vk").requires_grad_() for _ in range(3)
    )
    output = F.scaled_dot_product_attention(query, key, value, **settings)
    torch.autograd.grad(output, (query, key, value), torch.empty_like(output))
    found = [
        kernel["statistics"]
        for plan in loaded_plans()
        if plan not in others
        for kernel in plan.pipeline_statistics().values()
        if kernel["statistics"]["LDS size"]
    ]
    assert len(found) == 3, f"{len(found)} kernels with shared memory"
    return found


def main() -> None:
    """Print ``{"<width> <dtype> <settings>": [statistics of each pass]}``."""
    result = {}
    for width in (32, 64, 128, 256):
        result[f"{width} float32"] = _statistics(width, torch.float32)
    result["64 float16 causal"] = _statistics(64, torch.float16, is_causal=True)
    result["64 float32 dropout"] = _statistics(64, torch.float32, dropout_p=0.1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
