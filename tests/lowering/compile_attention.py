"""Compile attention's tiles for the device in use and print what the driver made of them, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics by head width and dtype on
standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

from torchvk_compile.codegen import attention_config
from torchvk_compile.device import eager, profile
from torchvk_compile.lowering import attention
from torchvk_compile.plan.executor import loaded_plans

ROWS = 256
HEADS = attention_config.Heads(torch.float32, 64, 64)


def statistics(width: int, dtype: torch.dtype, **settings: Any) -> list[dict[str, Any]]:
    """What the driver says of the three passes for heads of this width."""
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


def _use(position: int) -> None:
    """Have every pass take one of its alternatives, the last where it has fewer."""

    def choose(which: Any, *_: Any) -> attention_config.AttentionConfig:
        found = attention_config.alternatives(which, profile(0), HEADS)
        return found[min(position, len(found) - 1)]

    eager.clear()
    attention.choose_config = choose  # type: ignore[assignment]


def main() -> None:
    """Print ``{"<width> <dtype> <settings>": [statistics of each pass]}``."""
    result = {}
    for width in (32, 64, 128, 256):
        result[f"{width} float32"] = statistics(width, torch.float32)
    result["64 float16 causal"] = statistics(64, torch.float16, is_causal=True)
    result["64 float32 dropout"] = statistics(64, torch.float32, dropout_p=0.1)
    # The tile is chosen here, which Inductor's graph cache cannot know.
    inductor_config.force_disable_caches = True
    for position in range(len(attention_config.alternatives("query", profile(0), HEADS))):
        _use(position)
        result[f"64 float32 alternative {position}"] = statistics(64, torch.float32)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
