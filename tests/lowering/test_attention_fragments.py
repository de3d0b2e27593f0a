"""Cooperative matrices give the same attention as arithmetic on single numbers, and are taken where they are faster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from matrix_card import card
from navi10 import run_for_navi10
from test_attention import check, heads
from test_attention_tiles import check_dropout

from torchvk_compile.codegen.attention_config import (
    AttentionFragments,
    AttentionTile,
    Heads,
    alternatives,
    choose_config,
    has_narrow_accumulators,
)
from torchvk_compile.codegen.cooperative import fragment_of
from torchvk_compile.device import eager, profile
from torchvk_compile.lowering import attention

DTYPES = [torch.float16, torch.bfloat16]


@pytest.fixture(params=DTYPES, ids=str)
def dtype(
    vk: torch.device, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[torch.dtype]:
    """With fragments in the smallest tiles that have two of everything, for the sake of CPU drivers' compilers."""
    device = profile(0)
    fragment = fragment_of(device, request.param)
    if fragment is None:
        pytest.skip(f"{device.name} has no cooperative matrices of {request.param}")
    # Mesa's software rasteriser has all subgroups of a workgroup wait where one of them shall.
    subgroups = 1 if device.device_type == "cpu" else 2
    narrow = has_narrow_accumulators(device, request.param, fragment)
    config = AttentionFragments(fragment, subgroups, 2 * fragment.m, 2 * fragment.n, narrow)
    monkeypatch.setattr(attention, "choose_config", lambda *_: config)
    eager.clear()
    with inductor_config.patch(force_disable_caches=True):
        yield request.param
    eager.clear()


def test_ragged_causal_groups(vk: torch.device, dtype: torch.dtype) -> None:
    shapes = (1, 4, 21, 10), (1, 2, 43, 10)
    check(vk, heads(*shapes, value=20, dtype=dtype), is_causal=True, enable_gqa=True)


def test_more_queries_than_keys(vk: torch.device, dtype: torch.dtype) -> None:
    check(vk, heads((1, 2, 70, 16), (1, 2, 20, 16), dtype=dtype), is_causal=True)


def test_maxima_that_rise(vk: torch.device, dtype: torch.dtype) -> None:
    """Sums so far are scaled down again and again."""
    query, key, value = heads((1, 1, 18, 16), (1, 1, 90, 16), dtype=dtype)
    along = query.mean(-2, keepdim=True) * torch.linspace(0, 60, 90)[:, None]
    check(vk, [query, (along + 0.1 * key).to(dtype), value])


def test_added_mask_with_rows_that_see_nothing(vk: torch.device, dtype: torch.dtype) -> None:
    mask = torch.randn(19, 35, generator=torch.Generator().manual_seed(1)).to(dtype)
    mask[2] = -torch.inf
    check(vk, heads((2, 2, 19, 16), (2, 2, 35, 16), dtype=dtype), attn_mask=mask)


def test_boolean_mask_and_dropout(vk: torch.device, dtype: torch.dtype) -> None:
    check_dropout(vk, dtype)


# The choice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["forward", "query", "key_value"])
def test_fragments_are_taken_where_the_device_has_them(which: Any) -> None:
    half = Heads(torch.float16, 64, 64)
    assert isinstance(choose_config(which, card(), half), AttentionFragments)
    for found in alternatives(which, card(), half):
        if isinstance(found, AttentionFragments):
            assert found.shared_bytes(which, half) <= 48 * 1024
    others = [
        (card(), Heads(torch.float32, 64, 64)),
        (card(), Heads(torch.float16, 64, 256)),
        (card(), Heads(torch.float16, 8, 8)),
        (card(cooperative_matrix_shapes=[]), half),
        (card(full_subgroups=False), half),
        (card(shared_memory_bytes=8 * 1024), half),
        (card(max_workgroup_invocations=64), half),
    ]
    for device, wanted in others:
        assert isinstance(choose_config(which, device, wanted), AttentionTile)
        kinds = {type(found) for found in alternatives(which, device, wanted)}
        assert kinds == {AttentionTile}


def test_they_compile_for_rdna3(tmp_path: Path) -> None:
    """The kernels' own device is not everywhere; Mesa's compiler for RDNA3, which has cooperative matrices, is."""
    script = Path(__file__).with_name("compile_attention_fragments.py")
    for kernels in run_for_navi10(script, tmp_path, family="navi31").values():
        assert len(kernels) == 3
        for statistics in kernels:
            assert 0 < statistics["LDS size"] <= 48 * 1024
