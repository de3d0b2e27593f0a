"""Convolutions agree with CPU eager: outputs and all gradients, compiled and eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Check = Callable[..., None]


pytestmark = pytest.mark.usefixtures("fresh_graphs")


def values(*size: int, dtype: torch.dtype = torch.float32, last: bool = False) -> Tensor:
    """Random numbers that need gradients; `last` lays channels out last."""
    x = torch.randn(*size, dtype=dtype)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    return x.requires_grad_()


PLAIN: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "3x3": ({"padding": 1}, (2, 16, 8, 8), (12, 16, 3, 3)),
    "few channels, odd image": ({"stride": 2, "padding": 1}, (2, 3, 9, 7), (5, 3, 3, 3)),
    "dilation and groups": (
        {"stride": (2, 1), "padding": (2, 1), "dilation": (2, 3), "groups": 2},
        (2, 6, 11, 9),
        (8, 3, 3, 2),
    ),
    "pointwise": ({}, (2, 16, 5, 5), (8, 16, 1, 1)),
    "pointwise with stride": ({"stride": 2}, (2, 16, 6, 6), (8, 16, 1, 1)),
    "depthwise with stride": (
        {"padding": 2, "groups": 6, "stride": (2, 3), "dilation": (1, 2)},
        (2, 6, 9, 10),
        (6, 1, 3, 3),
    ),
    "groups of two": ({"groups": 4, "padding": (0, 1)}, (2, 8, 5, 6), (8, 2, 2, 3)),
    "depthwise": ({"padding": 1, "groups": 8}, (2, 8, 7, 7), (16, 1, 3, 3)),
    "stride beyond the kernel": ({"stride": 3}, (2, 4, 11, 10), (4, 4, 2, 1)),
    "padding beyond the kernel": ({"padding": 4}, (1, 3, 5, 4), (2, 3, 3, 3)),
    "same": ({"padding": "same", "dilation": 2}, (1, 3, 8, 9), (4, 3, 4, 3)),
    "one dimension": ({"padding": 1, "stride": 3}, (2, 4, 20), (6, 4, 5)),
    "three dimensions": (
        {"padding": (1, 0, 2), "stride": (2, 1, 3)},
        (2, 3, 5, 6, 7),
        (4, 3, 2, 3, 3),
    ),
    "no batch": ({"padding": 1}, (3, 8, 8), (4, 3, 3, 3)),
    "empty batch": ({"padding": 1}, (0, 3, 8, 8), (4, 3, 3, 3)),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain(assert_close_like_cpu: Check, name: str) -> None:
    options, size, weight = PLAIN[name]
    convolution = (F.conv1d, F.conv2d, F.conv3d)[len(weight) - 3]
    assert_close_like_cpu(
        lambda x, w, b: convolution(x, w, b, **options),
        values(*size),
        values(*weight),
        values(weight[0]),
        rtol=1e-4,
        atol=1e-4,
        eager=False,
        dynamic=False,
    )


TRANSPOSED: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = {
    "doubling": ({"stride": 2, "padding": 1, "output_padding": 1}, (2, 6, 5, 4), (6, 4, 3, 3)),
    "dilation and groups": (
        {
            "stride": (3, 2),
            "padding": 2,
            "output_padding": (1, 0),
            "groups": 2,
            "dilation": (2, 3),
        },
        (2, 6, 5, 4),
        (6, 4, 3, 3),
    ),
    "depthwise": ({"stride": 2, "padding": 1, "groups": 4}, (2, 4, 4, 5), (4, 1, 4, 3)),
    "gaps": ({"stride": 5}, (2, 3, 7), (3, 4, 3)),
    "stride divides dilation": ({"stride": 2, "dilation": 4}, (1, 2, 6), (2, 3, 3)),
    "three dimensions": ({"stride": 2}, (2, 3, 3, 4, 3), (3, 4, 2, 3, 2)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(assert_close_like_cpu: Check, name: str) -> None:
    options, size, weight = TRANSPOSED[name]
    dimensions = len(weight) - 3
    convolution = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dimensions]
    assert_close_like_cpu(
        lambda x, w, b: convolution(x, w, b, **options),
        values(*size),
        values(*weight),
        values(weight[1] * options.get("groups", 1)),
        rtol=1e-4,
        atol=1e-4,
        eager=False,
        dynamic=False,
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_channels_last(assert_close_like_cpu: Check, stride: int) -> None:
    assert_close_like_cpu(
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1, stride=stride)),
        values(2, 16, 8, 7, last=True),
        values(12, 16, 3, 3, last=True),
        values(12),
        rtol=1e-4,
        atol=1e-4,
        eager=False,
        dynamic=False,
    )


def test_any_strides(assert_close_like_cpu: Check) -> None:
    def strided(x: Tensor, w: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return (
            F.conv2d(x[:, ::2, 1:, ::2], w.transpose(0, 1), padding=1),
            F.conv2d(row.expand(2, 3, 8, 8), w.transpose(0, 1)),
        )

    inputs = values(2, 6, 9, 17), values(3, 4, 3, 3), values(3, 1, 8)
    assert_close_like_cpu(strided, *inputs, rtol=1e-4, atol=1e-4, eager=False, dynamic=False)


@pytest.mark.parametrize(
    "dtype, tolerance",
    [(torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float64, 1e-11)],
    ids=str,
)
def test_dtypes(assert_close_like_cpu: Check, dtype: torch.dtype, tolerance: float) -> None:
    assert_close_like_cpu(
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        (values(2, 16, 6, 6) / 4).detach().to(dtype).requires_grad_(),
        (values(8, 16, 3, 3) / 4).detach().to(dtype).requires_grad_(),
        values(8, dtype=dtype),
        rtol=tolerance,
        atol=tolerance * 8,
        eager=False,
        dynamic=False,
    )


def test_integers(assert_close_like_cpu: Check) -> None:
    x, w = torch.randint(-9, 9, (2, 3, 5, 5)), torch.randint(-9, 9, (4, 3, 3, 3))
    assert_close_like_cpu(lambda x, w: F.conv2d(x, w, padding=1), x, w, dynamic=False)


def test_epilogue_is_part_of_the_kernel(vk: torch.device) -> None:
    import torchvk_compile

    def block(x: Tensor, w: Tensor, b: Tensor, residual: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, w, b, padding=1) * 0.5 + residual)

    x, w, b, residual = (
        values(2, 8, 8, 8).detach(),
        values(8, 8, 3, 3).detach(),
        values(8).detach(),
        values(2, 8, 8, 8).detach(),
    )
    compiled = torch.compile(block, backend="torchvk", dynamic=False)
    placed = [t.to(vk) for t in (x, w, b, residual)]
    compiled(*placed)
    with torchvk_compile.audit() as audit:
        result = compiled(*placed)
        torch.vk.synchronize()  # type: ignore[attr-defined]
    assert audit.dispatches == 1
    torch.testing.assert_close(result.cpu(), block(x, w, b, residual), rtol=1e-4, atol=1e-4)


def test_dynamic_sizes(vk: torch.device) -> None:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, w, padding=1, stride=2))

    compiled = torch.compile(layer, backend="torchvk", dynamic=True)
    w = values(4, 3, 3, 3)
    on_device = w.detach().to(vk).requires_grad_()
    for size in ((2, 7, 9), (5, 8, 8), (1, 4, 4), (0, 4, 4)):
        x = values(size[0], 3, *size[1:])
        placed = x.detach().to(vk).requires_grad_()
        expected, actual = layer(x, w), compiled(placed, on_device)
        gradient = torch.randn_like(expected)
        wanted = torch.autograd.grad(expected, [x, w], gradient)
        got = torch.autograd.grad(actual, [placed, on_device], gradient.to(vk))
        for a, e in zip((actual, *got), (expected, *wanted), strict=True):
            torch.testing.assert_close(a.detach().cpu(), e.detach(), rtol=1e-4, atol=1e-4)


def test_eager(assert_close_like_cpu: Check) -> None:
    inputs = values(2, 4, 6, 6), values(4, 4, 3, 3), values(4)
    assert_close_like_cpu(
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        *inputs,
        rtol=1e-4,
        atol=1e-4,
        compiled=False,
    )


def test_unknown_dtypes_are_refused(vk: torch.device) -> None:
    from torchvk_compile.errors import UnsupportedOperatorError

    x = torch.zeros(1, 1, 3, 3, dtype=torch.bool, device=vk)
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.convolution.* bool"):
        torch.compile(lambda x: F.conv2d(x, x), backend="torchvk", dynamic=False)(x)
