"""Tiles in shared memory give the same attention as CPU panels, on whatever subgroups the device has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config as inductor_config
from test_attention import check, heads, passes

from torchvk_compile.codegen.attention_config import AttentionTile
from torchvk_compile.codegen.layout import reduction_subgroup
from torchvk_compile.device import eager, profile
from torchvk_compile.lowering import attention


@pytest.fixture(autouse=True)
def small_tile(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A tile that CPU drivers compile quickly. Inductor's graph cache cannot know that the test chose it."""
    tile = AttentionTile(8, 32, 4, 4, subgroup=reduction_subgroup(profile(0)), step=4)
    monkeypatch.setattr(attention, "choose_config", lambda *_: tile)
    eager.clear()
    with inductor_config.patch(force_disable_caches=True):
        yield
    eager.clear()


def test_ragged_causal_groups(vk: torch.device) -> None:
    check(
        vk,
        heads((1, 4, 21, 10), (1, 2, 43, 10), value=20),
        is_causal=True,
        enable_gqa=True,
    )


def test_mask_and_dropout_of_halves(vk: torch.device) -> None:
    check_dropout(vk, torch.float16)


def check_dropout(vk: torch.device, dtype: torch.dtype) -> None:
    """All passes drop the same weights, with a mask that leaves a row without any."""
    query, key, value = heads((1, 2, 18, 8), (1, 2, 37, 8), value=37, dtype=dtype)
    mask = torch.rand(18, 37, generator=torch.Generator().manual_seed(0)) > 0.2
    mask[2] = False

    def seeded(*tensors: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(3)
        function = torch.nn.functional.scaled_dot_product_attention
        moved = [tensor.to(vk) for tensor in tensors]
        results = passes(function, moved, attn_mask=mask.to(vk), dropout_p=0.4)
        return [x.cpu().float() for x in results]

    identity = torch.eye(37).to(dtype).expand(1, 2, 37, 37)
    kept = seeded(query, key, identity)[0] != 0
    assert 0.5 < kept[..., mask].float().mean() < 0.7

    def expected(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = (query @ key.transpose(-1, -2) / 8**0.5).masked_fill(~mask, -torch.inf)
        return (torch.softmax(scores, -1).nan_to_num() * kept / 0.6) @ value

    references = passes(expected, [tensor.float() for tensor in (query, key, value)])
    unit = torch.finfo(dtype).eps / torch.finfo(torch.float16).eps
    for own, other in zip(seeded(query, key, value), references, strict=True):
        torch.testing.assert_close(own, other.nan_to_num(), rtol=1e-2 * unit, atol=3e-3 * unit)
