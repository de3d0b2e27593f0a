"""Every tiling gives the same convolutions; the tiles that GPUs use run here on a CPU driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchvk_compile.codegen import convolution_config
from torchvk_compile.codegen.convolution_config import DIRECT, FLAT, SLIM
from torchvk_compile.codegen.gemm_config import BROAD, LARGE, SMALL, TileConfig
from torchvk_compile.lowering import convolution, convolution_weights

Check = Callable[..., None]

# Less to unroll than the tilings in use, by the same shells.
QUICK = TileConfig(16, 32, 4, 4, 8)
TALL = TileConfig(32, 16, 4, 4, 8)


pytestmark = pytest.mark.usefixtures("fresh_graphs")


def use(monkeypatch: pytest.MonkeyPatch, config: TileConfig) -> None:
    for room in (convolution, convolution_weights):
        monkeypatch.setattr(room, "choose_config", lambda *_, **__: config)


def run(check: Check, function: Callable[..., Any], *inputs: Tensor) -> None:
    inputs = tuple(x.requires_grad_(x.is_floating_point()) for x in inputs)
    check(function, *inputs, rtol=1e-4, atol=1e-4, eager=False, dynamic=False)


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize("config", [QUICK, dataclasses.replace(TALL, split_k=3)], ids=str)
def test_tiles(
    assert_close_like_cpu: Check,
    monkeypatch: pytest.MonkeyPatch,
    config: TileConfig,
    channels: int,
    last: bool,
) -> None:
    use(monkeypatch, config)
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, channels, 7, 6).contiguous(memory_format=layout)
    w = torch.randn(20, channels, 3, 3).contiguous(memory_format=layout)
    run(
        assert_close_like_cpu,
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1, stride=2)),
        x,
        w,
        torch.randn(20),
    )


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_groups(assert_close_like_cpu: Check, monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    use(monkeypatch, QUICK)
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 12, 7, 8).contiguous(memory_format=layout)
    run(
        assert_close_like_cpu,
        lambda x, w: F.conv2d(x, w, padding=(1, 0), dilation=(1, 2), groups=3),
        x,
        torch.randn(9, 4, 3, 2),
    )


def test_transposed(assert_close_like_cpu: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, QUICK)
    run(
        assert_close_like_cpu,
        lambda x, w: F.conv_transpose3d(
            x, w, stride=(1, 2, 3), padding=1, output_padding=(0, 1, 0)
        ),
        torch.randn(2, 4, 3, 4, 3),
        torch.randn(4, 6, 2, 3, 3),
    )


@pytest.mark.parametrize("config", [SMALL, FLAT, SLIM], ids=str)
def test_tiles_in_use(
    assert_close_like_cpu: Check, monkeypatch: pytest.MonkeyPatch, config: TileConfig
) -> None:
    use(monkeypatch, config)
    inputs = torch.randn(1, 8, 9, 9), torch.randn(17, 8, 3, 3)
    run(assert_close_like_cpu, lambda x, w: F.conv2d(x, w, padding=1), *inputs)


def test_the_choice_follows_the_grid() -> None:
    def choose(m: int, n: int, k: int, *, long: bool = False, units: int = 36) -> TileConfig:
        profile = SimpleNamespace(device_type="discrete", compute_units=units)
        return convolution_config.choose_config(profile, 1, m, n, k, torch.float32, long=long)

    assert choose(64, 100_000, 576) == BROAD
    assert choose(64, 3200, 576).split_k > 1
    assert choose(3, 100_000, 576).block_m == FLAT.block_m
    weights = choose(128, 1152, 100_000, long=True)
    assert weights == dataclasses.replace(LARGE, split_k=weights.split_k)
    assert weights.split_k > 1


def test_no_workgroup_needs_more_shared_memory_than_every_device_has() -> None:
    for config in convolution_config.CONFIGS.values():
        assert config.shared_bytes(4) <= 32 * 1024
    assert SMALL.shared_bytes(8) <= 32 * 1024


@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_rounding_errors_of_the_shell_for_cpu_drivers_grow_slowly(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, transposed: bool
) -> None:
    use(monkeypatch, DIRECT)
    operator = F.conv_transpose1d if transposed else F.conv1d
    x, w = torch.rand(8, 512, 130), torch.rand(512, 4, 9)
    w = w if transposed else w.transpose(0, 1).contiguous()
    gradient = torch.rand_like(operator(x, w))

    def step(x: Tensor, w: Tensor, gradient: Tensor) -> list[Tensor]:
        x, w = x.requires_grad_(), w.requires_grad_()
        result = operator(x, w)
        return [result, *torch.autograd.grad(result, [x, w], gradient)]

    compiled = torch.compile(step, backend="torchvk", dynamic=False)
    actual = compiled(x.to(vk), w.to(vk), gradient.to(vk))
    exact = step(x.double(), w.double(), gradient.double())
    unit = torch.finfo(torch.float32).eps
    # One sum in sequence is off by 30 units where 4608 positive products are added, by 16 with 1000.
    for mine, right in (*zip(actual[:1], exact[:1]), *zip(actual[2:], exact[2:])):
        assert ((mine.cpu().double() - right) / right).abs().max().item() < 10 * unit
