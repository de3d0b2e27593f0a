"""Recurrent layers, packed sequences and weight normalisation, eager and compiled, with their gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_LAYERS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
_CELLS = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
_MODES = ["eager", "compiled"]


def _leaves(result: object) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def _check(
    model: nn.Module,
    function: Callable[..., object],
    inputs: list[torch.Tensor],
    mode: str,
    tolerance: float = 1e-5,
) -> None:
    """`function` of the model and the inputs has the values and gradients on vk that it has on the CPU."""
    found = []
    for device in ("cpu", "vk"):
        here = copy.deepcopy(model).to(device)
        given = [x.detach().to(device).requires_grad_(x.is_floating_point()) for x in inputs]
        run = (
            torch.compile(function, backend="torchvk")
            if (device, mode) == ("vk", "compiled")
            else function
        )
        results = _leaves(run(here, *given))
        # Weights that differ from place to place, so that no gradient is uniform by accident.
        loss = sum(
            (r.float() * torch.linspace(-1, 1, r.numel()).to(device).view_as(r)).sum()
            for r in results
        )
        loss.backward()
        gradients = [x.grad for x in (*here.parameters(), *given) if x.requires_grad]
        found.append([t.detach().cpu() for t in (*results, *gradients)])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def _apply(model: nn.Module, *inputs: torch.Tensor) -> object:
    return model(*inputs)


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("kind", _LAYERS)
def test_layers(vk: torch.device, kind: str, mode: str) -> None:
    torch.manual_seed(0)
    model = _LAYERS[kind](5, 6, num_layers=2, bidirectional=True, batch_first=True)
    _check(model, _apply, [torch.randn(3, 4, 5)], mode)


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("kind", _CELLS)
def test_cells(vk: torch.device, kind: str, mode: str) -> None:
    torch.manual_seed(0)
    _check(_CELLS[kind](5, 6), _apply, [torch.randn(3, 5)], mode)


# Eager only: Dynamo asks torch 2.13's shape function of the LSTM cell, which fails without biases on every GPU.
@pytest.mark.parametrize("kind", _CELLS)
def test_cells_without_biases(vk: torch.device, kind: str) -> None:
    torch.manual_seed(0)
    _check(_CELLS[kind](5, 6, bias=False), _apply, [torch.randn(3, 5)], "eager")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_cells_in_half_precision(vk: torch.device, kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    cell = _CELLS[kind](8, 8).to(dtype)
    _check(cell, _apply, [torch.randn(3, 8).to(dtype)], "eager", 2e-2)


def test_an_lstm_with_a_projection(vk: torch.device) -> None:
    torch.manual_seed(0)
    _check(nn.LSTM(5, 6, proj_size=3, bias=False), _apply, [torch.randn(4, 2, 5)], "eager")


@pytest.mark.parametrize("kind", _LAYERS)
def test_packed_sequences(vk: torch.device, kind: str) -> None:
    torch.manual_seed(0)

    def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, torch.tensor([4, 1, 3]), True, enforce_sorted=False)
        return pad_packed_sequence(model(packed)[0], batch_first=True)[0]

    _check(_LAYERS[kind](5, 6, batch_first=True), run, [torch.randn(3, 4, 5)], "eager")


def test_a_cell_has_second_derivatives(vk: torch.device) -> None:
    torch.manual_seed(0)

    def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(model(x)[1].pow(2).sum(), x, create_graph=True)
        return gradient

    _check(nn.LSTMCell(5, 6), run, [torch.randn(3, 5)], "eager")


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("dim", [0, 1])
def test_weight_normalisation(vk: torch.device, dim: int, mode: str) -> None:
    torch.manual_seed(0)
    model = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6), dim=dim)
    _check(model, _apply, [torch.randn(3, 5)], mode)
