"""channels_last goes through a network and back, with the values of the default format."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

_NETWORKS = {
    "2d": (
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        (2, 3, 8, 8),
        torch.channels_last,
    ),
    "transposed": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 2, stride=2), nn.GELU(), nn.Conv2d(6, 2, 1)),
        (2, 4, 5, 6),
        torch.channels_last,
    ),
    "3d": (nn.Conv3d(2, 4, 2, groups=2), (1, 2, 4, 4, 4), torch.channels_last_3d),
}


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("kind", _NETWORKS)
def test_channels_last(vk: torch.device, kind: str, mode: str) -> None:
    torch.manual_seed(0)
    network, shape, memory_format = _NETWORKS[kind]
    x = torch.randn(shape, requires_grad=True)
    network = copy.deepcopy(network)
    expected = network(x)
    expected.square().sum().backward()

    on_vk = copy.deepcopy(network).to(vk).to(memory_format=memory_format)
    on_vk.zero_grad()
    function = torch.compile(on_vk, backend="torchvk") if mode == "compiled" else on_vk
    given = x.detach().to(vk).to(memory_format=memory_format).requires_grad_()
    result = function(given)
    result.square().sum().backward()

    for tensor in (
        result,
        given.grad,
        on_vk.get_parameter("weight" if kind == "3d" else "0.weight").grad,
    ):
        assert tensor.is_contiguous(memory_format=memory_format), tensor.stride()
    pairs = [(result, expected), (given.grad, x.grad)]
    pairs += [(p.grad, q.grad) for p, q in zip(on_vk.parameters(), network.parameters())]
    for actual, wanted in pairs:
        torch.testing.assert_close(actual.cpu(), wanted, rtol=1e-4, atol=1e-4, check_stride=False)


def test_the_default_format_stays(vk: torch.device) -> None:
    convolution = nn.Conv2d(3, 4, 3).to(vk)
    compiled = torch.compile(convolution, backend="torchvk")
    x = torch.randn(2, 3, 6, 6, device=vk)
    assert convolution(x).is_contiguous() and compiled(x).is_contiguous()
