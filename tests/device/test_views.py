"""Views share storage with their base, have torch's geometry, and write through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda x: x.view(2, 3, 4),
    "transpose": lambda x: x.view(4, 6).t(),
    "permute": lambda x: x.view(2, 3, 4).permute(2, 0, 1),
    "slice with step": lambda x: x[3:10:2],
    "slices": lambda x: x.view(4, 6)[1:3, 2:],
    "unfold": lambda x: x.view(4, 6).unfold(1, 3, 2),
    "diagonal": lambda x: x.view(4, 6).diagonal(),
    "select": lambda x: x.view(4, 6).select(0, 2),
    "expand": lambda x: x.unsqueeze(0).expand(3, 24),
    "as_strided": lambda x: x.as_strided((3, 3), (4, 1), 2),
    "wider dtype view": lambda x: x.view(torch.float64),
    "narrower dtype view": lambda x: x.view(torch.int16),
    "unbind": lambda x: x.view(4, 6).unbind(1)[2],
    "split": lambda x: x.split(7)[2],
    "chunk": lambda x: x.chunk(3)[1],
    "view_as_complex": lambda x: torch.view_as_complex(x.view(12, 2)),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(12, 2))),
    "reshape of a view": lambda x: x.view(2, 3, 4)[:, 1].reshape(2, 2, 2),
    "squeeze": lambda x: x.view(1, 24, 1).squeeze(),
    "flatten": lambda x: x.view(2, 3, 4).flatten(1),
    "movedim": lambda x: x.view(2, 3, 4).movedim(0, 2),
    "narrow": lambda x: x.narrow(0, 2, 5),
    "detach": lambda x: x.detach(),
    "ellipsis": lambda x: x.view(2, 3, 4)[..., None, 1],
    "alias": lambda x: x[:],
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_has_torchs_geometry_and_shares_storage(vk: torch.device, name: str) -> None:
    host = torch.arange(24.0)
    base = host.to(vk)
    expected, view = VIEWS[name](host), VIEWS[name](base)
    assert view.shape == expected.shape
    assert view.stride() == expected.stride()
    assert view.storage_offset() == expected.storage_offset()
    assert view.dtype == expected.dtype
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert torch.equal(view.cpu(), expected)


def test_views_know_their_base(vk: torch.device) -> None:
    base = torch.zeros(4, 6, device=vk)
    view = base[1]
    assert view._is_view()
    assert view._base is base
    assert view.data_ptr() == base.data_ptr() + 6 * 4


def test_writes_through_views_reach_the_base(vk: torch.device) -> None:
    base = torch.arange(24.0, device=vk).view(4, 6)
    base[1].fill_(7.0)
    base[:, 0].add_(100.0)
    base.t()[5, 2:] = -1.0
    expected = torch.arange(24.0).view(4, 6)
    expected[1].fill_(7.0)
    expected[:, 0].add_(100.0)
    expected.t()[5, 2:] = -1.0
    assert torch.equal(base.cpu(), expected)


def test_in_place_on_a_view_is_seen_by_autograd(vk: torch.device) -> None:
    leaf = torch.ones(4, device=vk, requires_grad=True)
    base = leaf * 2
    base[1:3].mul_(5.0)
    base.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [2.0, 10.0, 10.0, 2.0]


def test_version_counter_is_shared(vk: torch.device) -> None:
    base = torch.zeros(4, device=vk)
    view = base[:2]
    before = base._version
    view.add_(1.0)
    assert base._version == view._version == before + 1


def test_impossible_view_raises_torchs_error(vk: torch.device) -> None:
    tensor = torch.zeros(4, 6, device=vk)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        tensor.t().view(24)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        tensor.view(5, 5)


def test_in_place_views_change_the_tensor_itself(vk: torch.device) -> None:
    host = torch.arange(6.0).reshape(2, 3)
    tensor = host.to(vk)
    assert tensor.t_() is tensor
    assert tensor.shape == (3, 2) and tensor.stride() == (1, 3)
    tensor.unsqueeze_(0).squeeze_().transpose_(0, 1).as_strided_((2, 2), (3, 1))
    assert torch.equal(tensor.cpu(), host[:, :2])
    assert torch.equal(torch.rot90(host.to(vk)).cpu(), torch.rot90(host))
