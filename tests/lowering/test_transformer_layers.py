"""The fused operators of transformer layers at inference, beside the same layers on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torchvk_compile


def _check(module: nn.Module, *inputs: torch.Tensor, **options: object) -> None:
    """The module, at inference, gives on vk what it gives on the CPU."""
    module.eval()
    on_vk = copy.deepcopy(module).to("vk")
    moved = {k: v.to("vk") if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    with torch.inference_mode():
        expected = module(*inputs, **options)
        with torchvk_compile.audit() as audit:
            actual = on_vk(*(x.to("vk") for x in inputs), **moved)
    assert audit.gpu_only
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (actual, expected))):
        if other is None:
            assert one is None
        else:
            torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer(vk: torch.device, activation: str, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 4, 24, activation=activation, norm_first=norm_first, batch_first=True
    )
    _check(layer, torch.randn(2, 5, 16))


@pytest.mark.parametrize("masked", ["keys", "rows", "both"])
def test_masks(vk: torch.device, masked: str) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    options: dict[str, torch.Tensor] = {}
    if masked in ("keys", "both"):
        options["src_key_padding_mask"] = torch.tensor(
            [[False] * 5, [False, False, True, True, True]]
        )
    if masked in ("rows", "both"):
        options["src_mask"] = nn.Transformer.generate_square_subsequent_mask(5).bool()
    _check(layer, torch.randn(2, 5, 16), **options)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_and_its_weights(vk: torch.device, need_weights: bool, average: bool) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(12, 3, batch_first=True)
    x = torch.randn(2, 4, 12)
    _check(attention, x, x, x, need_weights=need_weights, average_attn_weights=average)


def test_an_encoder_compiled(vk: torch.device) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 24, batch_first=True), 2
    ).eval()
    x = torch.randn(2, 5, 16)
    compiled = torch.compile(copy.deepcopy(encoder).to(vk), backend="torchvk")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.to(vk)).cpu(), encoder(x), rtol=1e-5, atol=1e-5)
