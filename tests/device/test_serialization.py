"""Saving, loading, copying and pickling tensors and modules on the device."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("location", "device"),
    [
        (None, "vk:0"),
        ("cpu", "cpu"),
        ("vk", "vk:0"),
        ("vk:0", "vk:0"),
        (torch.device("vk", 0), "vk:0"),
        ({"vk:0": "cpu"}, "cpu"),
    ],
    ids=str,
)
def test_load_where_asked(vk: torch.device, location: Any, device: str, weights_only: bool) -> None:
    host = torch.arange(12.0).reshape(3, 4)
    file = saved({"tensor": host.to(vk), "half": host.to(vk, torch.float16)})
    loaded = torch.load(file, map_location=location, weights_only=weights_only)
    assert str(loaded["tensor"].device) == device
    assert torch.equal(loaded["tensor"].cpu(), host)
    assert torch.equal(loaded["half"].cpu(), host.to(torch.float16))


def test_views_still_share_storage_after_loading(vk: torch.device) -> None:
    base = torch.arange(6.0, device=vk)
    loaded = torch.load(saved([base, base[2:]]), weights_only=True)
    loaded[0].add_(1.0)
    assert loaded[1].tolist() == [3.0, 4.0, 5.0, 6.0]


def test_cpu_file_loads_onto_the_device(vk: torch.device) -> None:
    file = saved(torch.arange(3.0))
    assert torch.load(file, map_location="vk", weights_only=True).device == vk


def test_state_dict_round_trip(vk: torch.device) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(vk)
    file = saved(model.state_dict())
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    other.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value.cpu()), name


def test_missing_device_is_named(vk: torch.device) -> None:
    file = saved(torch.arange(3.0))
    with pytest.raises(RuntimeError, match="no device vk:9"):
        torch.load(file, map_location="vk:9", weights_only=True)


def test_deepcopy_of_tensors_parameters_and_buffers(vk: torch.device) -> None:
    tensor = torch.arange(4.0, device=vk)
    twin = copy.deepcopy(tensor)
    twin.add_(1.0)
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert twin.tolist() == [1.0, 2.0, 3.0, 4.0]
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(vk)
    other = copy.deepcopy(model)
    assert other[1].running_var.device == vk
    assert other[0].weight.data_ptr() != model[0].weight.data_ptr()


def test_deepcopy_keeps_sharing(vk: torch.device) -> None:
    base = torch.arange(4.0, device=vk)
    twin, view = copy.deepcopy([base, base[1:]])
    twin.zero_()
    assert view.tolist() == [0.0, 0.0, 0.0]
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_pickle(vk: torch.device) -> None:
    model = nn.Linear(3, 2).to(vk)
    tensor, twin = pickle.loads(pickle.dumps((torch.arange(3, device=vk), model)))
    assert tensor.device == vk
    assert tensor.tolist() == [0, 1, 2]
    assert torch.equal(twin.weight.cpu(), model.weight.cpu())


def test_dlpack_capsule_round_trip(vk: torch.device) -> None:
    tensor = torch.arange(4.0, device=vk)
    other = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    other.add_(1.0)
    assert tensor.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_numpy_needs_a_host_copy(vk: torch.device) -> None:
    tensor = torch.arange(3, device=vk)
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        tensor.numpy()
    assert tensor.cpu().numpy().tolist() == [0, 1, 2]
