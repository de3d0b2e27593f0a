"""`module.to("vk")` behaves as on CUDA: the parameters stay the same objects."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def test_parameters_keep_their_identity(vk: torch.device) -> None:
    model = nn.Linear(3, 2)
    weight = model.weight
    values = weight.detach().clone()
    assert model.to(vk) is model
    assert model.weight is weight
    assert weight.device == vk
    assert weight.requires_grad and weight.is_leaf
    assert torch.equal(weight.detach().cpu(), values)
    model.cpu()
    assert model.weight is weight
    assert torch.equal(weight.detach(), values)


def test_tied_weights_stay_tied(vk: torch.device) -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["embedding"].weight
    model.to(vk)
    assert model["head"].weight is model["embedding"].weight
    with torch.no_grad():
        model["embedding"].weight.fill_(3.0)
    assert model["head"].weight[0, 0].item() == 3.0
    assert len(list(model.parameters())) == 1


def test_optimizer_made_before_the_move_updates_the_moved_parameters(vk: torch.device) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    before = model.weight.detach().clone()
    model.to(vk)
    assert optimizer.param_groups[0]["params"][0] is model.weight
    for step in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 3, device=vk)).sum().backward()
        optimizer.step()
        expected = before - 0.5 * (1.0 if step == 0 else 2.9)
        torch.testing.assert_close(model.weight.detach().cpu(), expected)


def test_gradients_move_with_their_parameters(vk: torch.device) -> None:
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    model.to(vk)
    assert model.weight.grad is not None
    assert model.weight.grad.device == vk
    assert model.weight.grad.tolist() == [[1.0] * 3] * 2


def test_move_and_dtype_change_together(vk: torch.device) -> None:
    model = nn.Linear(3, 2)
    weight = model.weight
    model.to(vk, torch.float16)
    assert model.weight is weight
    assert weight.dtype is torch.float16
    model.float()
    assert weight.dtype is torch.float32 and weight.device == vk


def test_graph_recorded_before_the_move_does_not_leak_into_the_next(vk: torch.device) -> None:
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    model.to(vk)
    model.zero_grad()
    model(torch.ones(1, 3, device=vk)).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.device == vk


def test_shortcut_methods(vk: torch.device) -> None:
    model = nn.BatchNorm1d(2).vk()
    assert model.weight.is_vk and model.running_mean.is_vk
    assert torch.ones(2).vk().device == vk
    assert torch.ones(2).vk(0).device == vk
    assert not torch.ones(2).is_vk


def test_assigning_data_across_devices(vk: torch.device) -> None:
    tensor = torch.zeros(3)
    tensor.data = torch.arange(4.0, device=vk)
    assert tensor.device == vk
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.eye(3).to_sparse()


def test_load_state_dict_between_devices(vk: torch.device) -> None:
    source, target = nn.Linear(3, 2), nn.Linear(3, 2).to(vk)
    target.load_state_dict(source.state_dict())
    assert target.weight.device == vk
    assert torch.equal(target.weight.detach().cpu(), source.weight.detach())
    other = nn.Linear(3, 2)
    other.load_state_dict(target.state_dict(), assign=True)
    assert other.weight.device == vk
