"""nn.MultiheadAttention and nn.TransformerEncoderLayer: training, and what evaluation calls instead."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torchvk_compile

PADDED = torch.tensor([[False, False, False, True, True], [False] * 5])


def tokens() -> torch.Tensor:
    return torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))


def layer(**settings: Any) -> nn.TransformerEncoderLayer:
    torch.manual_seed(1)
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, **settings)


@pytest.mark.parametrize("settings", [{}, {"norm_first": True, "activation": "gelu"}], ids=str)
def test_encoder_layer_in_evaluation(vk: torch.device, settings: dict[str, Any]) -> None:
    module = layer(**settings).eval()
    moved = copy.deepcopy(module).to(vk)
    with torch.no_grad():
        moved(tokens().to(vk))
        with torchvk_compile.audit() as audit:
            actual = moved(tokens().to(vk))
        torch.testing.assert_close(actual.cpu(), module(tokens()), rtol=1e-4, atol=1e-5)
        assert audit.submissions == 1
        padded = moved(tokens().to(vk), src_key_padding_mask=PADDED.to(vk))
        expected = module(tokens(), src_key_padding_mask=PADDED)
    torch.testing.assert_close(padded.cpu()[~PADDED], expected[~PADDED], rtol=1e-4, atol=1e-5)


def test_encoder_does_not_nest_padded_sequences(vk: torch.device) -> None:
    encoder = nn.TransformerEncoder(layer(), 1).eval()
    moved = copy.deepcopy(encoder).to(vk)
    with torch.no_grad():
        expected = encoder(tokens(), src_key_padding_mask=PADDED)
        actual = moved(tokens().to(vk), src_key_padding_mask=PADDED.to(vk)).cpu()
    torch.testing.assert_close(actual[~PADDED], expected[~PADDED], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_in_evaluation(vk: torch.device, need_weights: bool) -> None:
    torch.manual_seed(1)
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    moved = copy.deepcopy(module).to(vk)
    hidden = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)

    def outputs(module: nn.Module, place: Any) -> list[torch.Tensor]:
        x, padded, mask = (value.to(place) for value in (tokens(), PADDED, hidden))
        arguments = {"need_weights": need_weights, "average_attn_weights": False}
        results = (
            module(x, x, x, key_padding_mask=padded, **arguments),
            module(x, x, x, attn_mask=mask, **arguments),
        )
        return [value.cpu() for pair in results for value in pair if value is not None]

    with torch.no_grad():
        for own, other in zip(outputs(moved, vk), outputs(module, "cpu"), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_compiled_training(vk: torch.device) -> None:
    module = layer()
    moved = copy.deepcopy(module).to(vk)
    module(tokens(), src_key_padding_mask=PADDED).square().sum().backward()
    compiled = torch.compile(moved, backend="torchvk")
    compiled(tokens().to(vk), src_key_padding_mask=PADDED.to(vk)).square().sum().backward()
    for own, other in zip(moved.parameters(), module.parameters(), strict=True):
        assert own.grad is not None and other.grad is not None
        torch.testing.assert_close(own.grad.cpu(), other.grad, rtol=1e-3, atol=1e-4)
