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
from torchvk_compile.codegen.convolution_config import DIRECT, FLAT, SLIM, fills_tiles
from torchvk_compile.codegen.gemm_config import BROAD, SMALL, TileConfig
from torchvk_compile.codegen.tiles import AMD
from torchvk_compile.lowering import convolution, convolution_weights

Check = Callable[..., None]

# Less to unroll than the tilings in use, by the same shells.
QUICK = TileConfig(16, 32, 4, 4, 8)
TALL = TileConfig(32, 16, 4, 4, 8)


pytestmark = pytest.mark.usefixtures("fresh_graphs")


def use(monkeypatch: pytest.MonkeyPatch, config: TileConfig, *, turn_weights: bool = False) -> None:
    for room in (convolution, convolution_weights):
        monkeypatch.setattr(room, "choose_config", lambda *_, **__: config)
    monkeypatch.setattr(convolution, "pays_to_turn_weights", lambda *_: turn_weights)


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
@pytest.mark.parametrize("channels", [32, 28])
@pytest.mark.parametrize("parts", [1, 2])
def test_weight_gradients_by_tap(
    assert_close_like_cpu: Check,
    monkeypatch: pytest.MonkeyPatch,
    parts: int,
    channels: int,
    last: bool,
) -> None:
    """Tiles that keep to one tap, with channels that fill them or almost do."""
    config = dataclasses.replace(QUICK, block_k=16, slices=2, split_k=parts)
    use(monkeypatch, config)
    assert fills_tiles(channels, config)
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 2 * channels, 7, 6).contiguous(memory_format=layout)
    run(
        assert_close_like_cpu,
        lambda x, w: F.conv2d(x, w, padding=(1, 0), stride=(1, 2), groups=2),
        x,
        torch.randn(12, channels, 3, 2),
    )


@pytest.mark.parametrize("operator", [F.conv2d, F.conv_transpose2d])
def test_turned_weights(
    assert_close_like_cpu: Check, monkeypatch: pytest.MonkeyPatch, operator: Callable[..., Any]
) -> None:
    use(monkeypatch, QUICK, turn_weights=True)
    run(
        assert_close_like_cpu,
        lambda x, w: operator(x, w, padding=1, stride=2, groups=2),
        torch.randn(2, 16, 7, 6),
        torch.randn(16, 8 if operator is F.conv2d else 6, 3, 3),
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
    profile = SimpleNamespace(device_type="discrete", compute_units=36, vendor_id=AMD)

    def choose(m: int, n: int, k: int, *, taps: int = 1) -> TileConfig:
        return convolution_config.choose_config(profile, 1, m, n, k, torch.float32, taps=taps)

    assert choose(64, 100_000, 576) == BROAD
    assert choose(256, 784, 2304).split_k > 1
    assert choose(3, 100_000, 576).block_m == FLAT.block_m
    for channels in (64, 128):
        weights = choose(channels, channels * 9, 100_000, taps=9)
        assert weights.split_k > 1
        assert channels % weights.block_n == 0


def test_weights_are_turned_where_that_pays() -> None:
    profile = SimpleNamespace(device_type="discrete", compute_units=36, vendor_id=AMD)

    def pays(channels: int, pixels: int, config: TileConfig = BROAD) -> bool:
        nbytes = 4 * 9 * channels**2
        size = (channels, pixels, 9 * channels)
        return convolution_config.pays_to_turn_weights(profile, config, 1, *size, nbytes)

    assert pays(64, 100_000)
    assert not pays(16, 64)
    assert not pays(64, 100_000, DIRECT)


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
