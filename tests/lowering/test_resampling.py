"""Interpolation, grid sampling, padding and folding agree with CPU eager, forward and backward.

What is lowered as a function of torch tensors is compared with ATen on the CPU in all its variants; a
few of each kind then run on the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchvk_compile.lowering import grid_sampling, padding, resampling

aten = torch.ops.aten
Check = Callable[..., None]


pytestmark = pytest.mark.usefixtures("fresh_graphs")


SIZES = [((5, 7), (9, 13)), ((9, 8), (4, 3)), ((5, 5), (1, 1))]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("scale", [None, 1.7])
@pytest.mark.parametrize("source, target", SIZES)
@pytest.mark.parametrize(
    "name, weights",
    [
        ("upsample_bilinear2d", resampling.linear_weights),
        ("upsample_bicubic2d", resampling.cubic_weights),
        ("_upsample_bilinear2d_aa", resampling.smooth_linear_weights),
        ("_upsample_bicubic2d_aa", resampling.smooth_cubic_weights),
    ],
)
def test_weights(
    name: str,
    weights: resampling.Weights,
    source: tuple[int, int],
    target: tuple[int, int],
    scale: float | None,
    align: bool,
) -> None:
    x, grad = torch.randn(2, 3, *source), torch.randn(2, 3, *target)
    expected = getattr(aten, name)(x, target, align, scale, scale)
    actual = resampling.resampled(weights)(x, target, align, scale, scale)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    expected = getattr(aten, f"{name}_backward")(grad, target, x.shape, align, scale, scale)
    actual = resampling.gradient(weights, True)(grad, target, x.shape, align, scale, scale)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [None, 1.7])
@pytest.mark.parametrize(
    "name, weights",
    [
        ("upsample_nearest3d", resampling.nearest_weights),
        ("_upsample_nearest_exact3d", resampling.nearest_exact_weights),
    ],
)
def test_nearest_weights(name: str, weights: resampling.Weights, scale: float | None) -> None:
    grad, size = torch.randn(2, 3, 4, 9, 13), (2, 3, 6, 5, 7)
    expected = getattr(aten, f"{name}_backward")(grad, (4, 9, 13), size, scale, scale, scale)
    actual = resampling.gradient(weights, False)(grad, (4, 9, 13), size, scale, scale, scale)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_grid_samplers(mode: str, outside: str, align: bool) -> None:
    kind = ("bilinear", "nearest", "bicubic").index(mode)
    beyond = ("zeros", "border", "reflection").index(outside)
    for size in ((5, 6), (4, 5, 6)):
        if mode == "bicubic" and len(size) == 3:
            continue
        x = torch.randn(2, 3, *size)
        grid = torch.rand(2, *range(3, 3 + len(size)), len(size)) * 2.6 - 1.3
        grid[0, 0, 0] = 1
        sampler = (aten.grid_sampler_2d, aten.grid_sampler_3d)[len(size) - 2]
        expected = sampler(x, grid, kind, beyond, align)
        actual = grid_sampling.grid_sampler(x, grid, kind, beyond, align)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
        backward = (aten.grid_sampler_2d_backward, aten.grid_sampler_3d_backward)[len(size) - 2]
        for wanted in ([True, True], [True, False], [False, True]):
            rest = torch.randn_like(expected), x, grid, kind, beyond, align, wanted
            found = grid_sampling.grid_sampler_gradient(*rest)
            for a, e in zip(found, backward(*rest), strict=True):
                torch.testing.assert_close(a, e, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)], ids=str)
def test_gradients_of_grid_sampling_without_the_other(
    vk: torch.device, wanted: tuple[bool, bool]
) -> None:
    values = torch.randn(1, 2, 5, 6), torch.rand(1, 3, 4, 2) * 2.2 - 1.1
    gradients = []
    for device in (torch.device("cpu"), vk):
        x, grid = (
            value.to(device, copy=True).requires_grad_(needed)
            for value, needed in zip(values, wanted, strict=True)
        )
        F.grid_sample(x, grid, align_corners=False).sum().backward()
        gradients.append([None if t.grad is None else t.grad.cpu() for t in (x, grid)])
    torch.testing.assert_close(*gradients)


ON_DEVICE: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "linear": (lambda x: F.interpolate(x, size=11, mode="linear"), [(2, 3, 7)]),
    "bilinear": (
        lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
        [(2, 3, 4, 5)],
    ),
    "nearest-exact": (
        lambda x: F.interpolate(x, scale_factor=0.6, mode="nearest-exact"),
        [(1, 2, 5, 7)],
    ),
    "trilinear": (lambda x: F.interpolate(x, size=(5, 7, 3), mode="trilinear"), [(1, 2, 3, 4, 5)]),
    "antialias": (
        lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
        [(1, 2, 8, 9)],
    ),
    "area": (lambda x: F.interpolate(x, size=(3, 4), mode="area"), [(1, 2, 8, 9)]),
    "reflect": (lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), [(2, 3, 5, 6)]),
    "replicate": (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), [(2, 3, 5, 6)]),
    "circular": (lambda x: F.pad(x, (2, 1, 0, 3), mode="circular"), [(2, 3, 5, 6)]),
    "unfold": (lambda x: F.unfold(x, (3, 2), (1, 2), (1, 0), (2, 1)), [(2, 3, 8, 9)]),
    "fold": (lambda x: F.fold(x, (8, 9), (3, 2), (1, 2), (1, 0), (2, 1)), [(2, 18, 28)]),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), [(2, 8, 3, 4)]),
    "grid": (
        lambda x, g: F.grid_sample(x, g.tanh() * 1.2, align_corners=False),
        [(2, 3, 5, 6), (2, 4, 5, 2)],
    ),
}


@pytest.mark.parametrize("name", ON_DEVICE)
def test_on_the_device(assert_close_like_cpu: Check, name: str) -> None:
    function, sizes = ON_DEVICE[name]
    inputs: list[Tensor] = [torch.randn(*size, requires_grad=True) for size in sizes]
    assert_close_like_cpu(function, *inputs, rtol=1e-4, atol=1e-5, eager=False, dynamic=False)


def test_replication_of_every_border() -> None:
    for before, after in itertools.product((-1, 0, 1, 3), repeat=2):
        x = torch.randn(2, 3, 4, 5)
        amounts = (before, after, after, before)
        grad = torch.randn(2, 3, 4 + before + after, 5 + before + after)
        torch.testing.assert_close(
            padding.replication_pad_gradient(grad, x, amounts),
            aten.replication_pad2d_backward(grad, x, amounts),
        )


def test_eager_backward_does_not_wait_for_itself(vk: torch.device) -> None:
    gradients = []
    for device in ("cpu", vk):
        x = torch.linspace(-1, 1, 90).reshape(2, 1, 5, 9).to(device).requires_grad_()
        grid = torch.linspace(-0.9, 0.9, 64).reshape(2, 4, 4, 2).to(device).requires_grad_()
        F.grid_sample(x, grid, align_corners=False).sum().backward()
        gradients.append((x.grad, grid.grad))
    for mine, theirs in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)
