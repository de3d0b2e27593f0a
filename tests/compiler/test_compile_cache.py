"""A graph that was compiled before comes from torch's caches: nothing is lowered again."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache


def test_a_training_step_comes_from_the_cache(vk: torch.device) -> None:
    model = nn.Linear(6, 4).to(vk)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x, y = torch.randn(8, 6).to(vk), torch.randint(0, 4, (8,)).to(vk)

    def train() -> dict[str, int]:
        torch._dynamo.reset()
        counters.clear()
        loss_of = torch.compile(lambda: F.cross_entropy(model(x), y), backend="torchvk")
        update = torch.compile(lambda: optimizer.step(), backend="torchvk")
        loss_of().backward()
        update()
        return dict(counters["aot_autograd"])

    with fresh_cache():
        first, second = train(), train()
    assert first.get("autograd_cache_hit", 0) == 0
    assert first["autograd_cache_saved"] == 2, "the loss with its gradients, the update"
    assert second["autograd_cache_hit"] == 2
    assert second.get("autograd_cache_miss", 0) == second.get("autograd_cache_bypass", 0) == 0
