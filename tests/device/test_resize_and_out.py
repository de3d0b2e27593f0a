"""`resize_`, `set_` and `out=`: tensors that get another geometry in place."""

from __future__ import annotations

import warnings

import pytest
import torch


def test_shrinking_keeps_the_storage(vk: torch.device) -> None:
    tensor = torch.arange(6.0, device=vk)
    address = tensor.data_ptr()
    tensor.resize_(2)
    assert tensor.tolist() == [0.0, 1.0]
    tensor.resize_(6)
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert tensor.data_ptr() == address


def test_growing_keeps_the_data(vk: torch.device) -> None:
    tensor = torch.arange(4.0, device=vk)
    tensor.resize_(2, 4)
    assert tensor.shape == (2, 4)
    assert tensor[0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_growing_a_view_keeps_its_offset(vk: torch.device) -> None:
    base = torch.arange(6.0, device=vk)
    view = base[4:]
    view.resize_(5)
    assert view.storage_offset() == 4
    assert view[:2].tolist() == [4.0, 5.0]
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_resize_to_nothing_and_back(vk: torch.device) -> None:
    tensor = torch.arange(4.0, device=vk)
    tensor.resize_(0)
    assert tensor.tolist() == []
    assert tensor.resize_as_(torch.empty(2, 2)).tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_set_shares_and_resets(vk: torch.device) -> None:
    source = torch.arange(6.0, device=vk)
    tensor = torch.empty(0, device=vk)
    tensor.set_(source)
    assert tensor.data_ptr() == source.data_ptr()
    assert tensor.is_set_to(source)
    tensor.set_(source.untyped_storage(), 2, (2, 2), (2, 1))
    assert tensor.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    tensor.set_()
    assert tensor.shape == (0,)
    assert tensor.device == vk


def test_set_past_the_end_is_refused(vk: torch.device) -> None:
    source = torch.arange(6.0, device=vk)
    with pytest.raises(RuntimeError, match="storage"):
        torch.empty(0, device=vk).set_(source.untyped_storage(), 4, (4,), (1,))


def test_out_takes_its_shape_from_the_result(vk: torch.device) -> None:
    ones = torch.ones(2, 3, device=vk)
    out = torch.empty(0, device=vk)
    assert torch.add(ones, ones, out=out) is out
    assert out.tolist() == [[2.0] * 3] * 2


def test_out_of_another_shape_is_resized_with_a_warning(vk: torch.device) -> None:
    ones = torch.ones(2, 3, device=vk)
    out = torch.zeros(7, device=vk)
    with pytest.warns(UserWarning, match="resized"):
        torch.add(ones, ones, out=out)
    assert out.tolist() == [[2.0] * 3] * 2


def test_out_may_be_strided(vk: torch.device) -> None:
    ones = torch.ones(3, 4, device=vk)
    transposed = torch.zeros(4, 3, device=vk)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.mul(ones, 3.0, out=transposed.t())
    assert transposed.tolist() == [[3.0] * 3] * 4
    gaps = torch.zeros(3, 8, device=vk)
    torch.mul(ones, 3.0, out=gaps[:, ::2])
    assert gaps.tolist() == [[3.0, 0.0] * 4] * 3


def test_out_may_be_an_input(vk: torch.device) -> None:
    host = torch.arange(9.0).reshape(3, 3)
    there = host.to(vk)
    torch.add(there, 1.0, out=there)
    assert torch.equal(there.cpu(), host + 1)
    torch.mm(there, there, out=there)
    assert torch.equal(there.cpu(), (host + 1) @ (host + 1))


def test_several_outputs(vk: torch.device) -> None:
    host = torch.tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
    values, indices = torch.empty(0, device=vk), torch.empty(0, dtype=torch.int64, device=vk)
    result = torch.max(host.to(vk), 1, out=(values, indices))
    assert result[0] is values
    assert values.tolist() == [5.0, 7.0]
    assert indices.tolist() == [1, 0]


def test_wrong_out_dtype_raises(vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(torch.ones(2, device=vk), 1.5, out=torch.empty(2, dtype=torch.int64, device=vk))
