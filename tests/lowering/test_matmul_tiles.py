"""Every tiling gives the same products, on whatever subgroups the device has."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_matmul import check, values

from torchvk_compile.codegen import gemm_config
from torchvk_compile.codegen.gemm_config import (
    BROAD,
    HIGH,
    LARGE,
    MEDIUM,
    SLICED,
    SMALL,
    SMALL_SLICED,
    TALL,
    WIDE,
    GemmConfig,
    PanelConfig,
)
from torchvk_compile.codegen.template_kernel import TemplateKernel
from torchvk_compile.codegen.tiles import AMD, NVIDIA
from torchvk_compile.lowering import matmul

pytestmark = pytest.mark.usefixtures("fresh_graphs")


def use(monkeypatch: pytest.MonkeyPatch, config: GemmConfig) -> None:
    monkeypatch.setattr(matmul, "choose_config", lambda *_, **__: config)


def layouts(a: Any, b: Any, column: Any) -> Any:
    """Operands that are contiguous along either dimension, or none."""
    return (
        torch.relu(a @ b + column),
        a @ b.t().contiguous().t() * 2,
        a.t().contiguous().t() @ b,
        a[:, ::2] @ b[::2],
    )


def test_tiles_of_any_layout(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SMALL)
    for k in (36, 48):  # the last step of K is half empty, or full
        check(layouts, values(70, k), values(k, 68), values(68), device=vk)


@pytest.mark.parametrize("config", [LARGE, HIGH, BROAD, MEDIUM, SLICED, TALL, WIDE], ids=str)
def test_tiles(vk: torch.device, monkeypatch: pytest.MonkeyPatch, config: GemmConfig) -> None:
    use(monkeypatch, config)
    check(lambda a, b: torch.relu(a @ b.t()), values(130, 20), values(137, 20), device=vk)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int64,
    ],
    ids=str,
)
def test_tiles_of_other_dtypes(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    use(monkeypatch, SMALL)

    compiled = torch.compile(torch.addmm, backend="torchvk", dynamic=False)
    for offset in (0, 1):  # the second is not aligned
        bias, a, b = (values(n + offset, dtype=dtype)[offset:] for n in (36, 33 * 20, 20 * 36))
        check(torch.addmm, bias, a.view(33, 20), b.view(20, 36), device=vk, compiled=compiled)


@pytest.mark.parametrize("slices, parts", [(2, 1), (4, 3)])
def test_slices_add_up(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, slices: int, parts: int
) -> None:
    config = dataclasses.replace(SMALL, block_k=32, slices=slices, split_k=parts)
    use(monkeypatch, config)
    for k in (20, 200):  # less than a step, and several of which the last is partly empty
        check(layouts, values(70, k), values(k, 68), values(68), device=vk)


def test_slices_of_integers(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SMALL_SLICED)
    a, b = (values(*size, dtype=torch.int64) for size in ((33, 40), (40, 36)))
    check(torch.mm, a, b, device=vk)


@pytest.mark.parametrize("parts", [3, 16])
def test_split_k(vk: torch.device, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    use(monkeypatch, dataclasses.replace(SMALL, split_k=parts))

    def products(a: Any, b: Any, bias: Any) -> Any:
        batched = a.expand(2, *a.shape) @ b.expand(2, *b.shape)
        return torch.relu(torch.addmm(bias, a, b, alpha=0.5)), batched

    check(products, values(40, 70), values(70, 36), values(36), device=vk)
    check(products, values(40, 48).half(), values(48, 36).half(), values(36).half(), device=vk)


@pytest.mark.parametrize("rows, columns", [(8, 2), (16, 4)])
def test_panels(vk: torch.device, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int) -> None:
    subgroup = _profile(vk).subgroup_size
    use(monkeypatch, PanelConfig(rows, columns, subgroup, min(8, subgroup)))
    check(layouts, values(70, 36), values(36, 68), values(68), device=vk)


@pytest.mark.parametrize("config", [SMALL, PanelConfig(8, 2, 8, 8)], ids=str)
def test_indices_of_64_bits(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, config: GemmConfig
) -> None:
    if isinstance(config, PanelConfig) and _profile(vk).subgroup_size != config.subgroup:
        pytest.skip("the panel is for subgroups of eight")
    use(monkeypatch, config)
    monkeypatch.setattr(TemplateKernel, "_choose_index_dtype", lambda _: torch.int64)
    for dtype in (torch.float32, torch.float16):
        inputs = (values(*size, dtype=dtype) for size in ((36,), (40, 33), (33, 36)))
        check(torch.addmm, *inputs, device=vk)


def test_more_products_than_one_row_of_workgroups(vk: torch.device) -> None:
    check(torch.bmm, values(66_000, 1, 2), values(66_000, 2, 3), device=vk)


def test_tiles_with_dynamic_sizes(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SMALL)
    compiled = torch.compile(layouts, backend="torchvk", dynamic=True)
    for m, n, k in ((9, 17, 14), (64, 64, 32), (33, 70, 50)):
        check(layouts, values(m, k), values(k, n), values(n), device=vk, compiled=compiled)


def _profile(device: torch.device) -> Any:
    from torchvk_compile.device import profile

    return profile(device.index or 0)


def test_the_choice_follows_the_grid() -> None:
    def choose(
        units: int, *size: int, dtype: torch.dtype = torch.float32, vendor: int = AMD
    ) -> GemmConfig:
        profile = SimpleNamespace(device_type="discrete", compute_units=units, vendor_id=vendor)
        return gemm_config.choose_config(profile, *size, dtype)

    assert choose(36, 1, 4096, 4096, 4096) == LARGE
    assert choose(36, 1, 512, 512, 512).block_m == 64
    assert choose(36, 1, 64, 64, 32) == SMALL
    assert choose(36, 1, 4096, 10, 256).block_n == TALL.block_n
    assert choose(36, 1, 8, 4096, 4096).block_m == WIDE.block_m
    assert choose(36, 1, 64, 64, 100_000).split_k > 8
    assert choose(36, 1, 4096, 4096, 4096, dtype=torch.float64) == SMALL
    assert choose(0, 1, 300, 300, 300, vendor=0).split_k >= 1
    # Few tiles for many units: more invocations share each.
    assert choose(132, 1, 1024, 1024, 1024, vendor=NVIDIA) == SLICED
    assert choose(132, 1, 512, 512, 512, vendor=NVIDIA) == SMALL_SLICED


def test_a_split_gives_every_unit_as_many_workgroups() -> None:
    profile = SimpleNamespace(device_type="discrete", compute_units=36, vendor_id=AMD)
    config = gemm_config.choose_config(profile, 1, 64, 64, 100_000, torch.float32)
    assert config.tiles(1, 64, 64) * config.split_k % 36 == 0


def test_a_workgroup_shares_its_loads_evenly() -> None:
    with pytest.raises(ValueError, match="evenly"):
        dataclasses.replace(SMALL, slices=8)
