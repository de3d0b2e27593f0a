"""Products on cooperative matrices: when they are chosen, what they compile to, what a device with them computes."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matrix_card import card, shape
from test_matmul import check, values
from test_matmul_tiles import layouts, use

from torchvk_compile.codegen import gemm_config
from torchvk_compile.codegen.cooperative import CooperativeConfig, Fragment, fragment_of
from torchvk_compile.codegen.gemm_config import TileConfig, cooperative_tiles
from torchvk_compile.codegen.template_kernel import TemplateKernel
from torchvk_compile.device import eager
from torchvk_compile.lowering import matmul
from torchvk_compile.plan.executor import CompiledPlan

pytestmark = pytest.mark.usefixtures("fresh_graphs")

HALF = torch.float16


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def small(vk: torch.device) -> CooperativeConfig:
    """The smallest tile of two by two subgroups, on a device that has cooperative matrices of float16."""
    from torchvk_compile.device import profile

    device = profile(vk.index or 0)
    fragment = fragment_of(device, HALF)
    if fragment is None:
        pytest.skip(f"{device.name} multiplies no float16 matrices by whole subgroups")
    side_m, side_n = 2 * fragment.m, 2 * fragment.n
    block_k = max(2 * fragment.k, fragment.lanes)
    config = CooperativeConfig(fragment, 2 * side_m, 2 * side_n, side_m, side_n, block_k)
    assert config.fits(device)
    return config


def chosen(profile: Any, dtype: torch.dtype, *size: int) -> gemm_config.GemmConfig:
    tiles = matmul.cooperative_tiles_for(profile, dtype)
    return gemm_config.choose_config(profile, *size, torch.float32, tiles)


def test_large_products_of_16_bits_are_cooperative() -> None:
    for dtype, element in ((HALF, "half"), (torch.bfloat16, "BFloat16")):
        config = chosen(card(), dtype, 1, 4096, 4096, 4096)
        assert isinstance(config, CooperativeConfig)
        assert config.fragment == Fragment(16, 16, 16, element, 32)
        assert config.products == 1
        few = chosen(card(), dtype, 1, 256, 256, 8192)
        assert isinstance(few, CooperativeConfig) and few.split_k > 1


@pytest.mark.usefixtures("precision")
def test_float32_products_are_cooperative_where_the_user_allows_it() -> None:
    torch.set_float32_matmul_precision("highest")
    assert isinstance(chosen(card(), torch.float32, 1, 4096, 4096, 4096), TileConfig)
    for allowed in ("high", "medium"):
        torch.set_float32_matmul_precision(allowed)
        config = chosen(card(), torch.float32, 1, 4096, 4096, 4096)
        assert isinstance(config, CooperativeConfig)
        assert (config.products, config.fragment.element) == (3, "BFloat16")
    assert isinstance(chosen(card(), torch.float64, 1, 512, 512, 512), TileConfig)


@pytest.mark.parametrize(
    ("setting", "rounds"),
    [
        ("torch.set_float32_matmul_precision('highest')", False),
        ("torch.set_float32_matmul_precision('medium')", True),
        ("torch.backends.cuda.matmul.allow_tf32 = True", True),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", True),
        ("torch.backends.cuda.matmul.fp32_precision = 'ieee'", False),
    ],
)
def test_every_way_to_allow_it_is_understood(setting: str, rounds: bool) -> None:
    # In a process of its own: torch refuses to go back from its newer settings to the older ones.
    ask = "print(torch_compat.rounds_float32_products())"
    script = f"import torch\nfrom torchvk_compile import torch_compat\n{setting}\n{ask}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(rounds)


@pytest.mark.parametrize(
    "lacking",
    [
        {"cooperative_matrix_shapes": []},
        {"cooperative_matrix_shapes": [shape("float16", 16, 16, 16, sums="float16")]},
        {"cooperative_matrix_shapes": [shape("bfloat16", 16, 16, 16)]},
        {"subgroup_size_control": False},
        {"full_subgroups": False},
        {"memory_model": False},
        {"shared_memory_bytes": 4 << 10},
    ],
    ids=str,
)
def test_devices_that_lack_something_have_other_tiles(lacking: dict[str, Any]) -> None:
    assert isinstance(chosen(card(**lacking), HALF, 1, 4096, 4096, 4096), TileConfig)


def test_other_makers_cards_have_tiles_that_their_registers_hold() -> None:
    config = chosen(card(vendor_id=0x1002), HALF, 1, 4096, 4096, 4096)
    assert isinstance(config, CooperativeConfig) and config.subgroup_m * config.subgroup_n <= 1024


def test_every_tile_fits_what_vulkan_promises_matrix_units() -> None:
    for lanes in (8, 16, 32, 64):
        profile = card(subgroup_size=lanes, min_subgroup_size=lanes, max_subgroup_size=lanes)
        for products in (1, 3):
            tiles = cooperative_tiles(profile, fragment_of(profile, HALF), products)
            assert tiles and len({str(tile) for tile in tiles}) == len(tiles)


class _CompiledOnlyError(Exception):
    pass


@pytest.mark.parametrize("products", [1, 3])
def test_shaders_are_valid(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, products: int
) -> None:
    modules: list[bytes] = []

    def compile_only(plan: CompiledPlan, slang: str) -> Any:
        modules.append(plan._spirv(slang))
        raise _CompiledOnlyError

    monkeypatch.setattr(CompiledPlan, "_build", compile_only)
    fragment = Fragment(16, 16, 16, "BFloat16", 32)
    use(monkeypatch, CooperativeConfig(fragment, 64, 64, 32, 32, 32, products))
    dtype = torch.float32 if products == 3 else torch.bfloat16
    for m, n, k in ((128, 128, 128), (70, 66, 37)):
        compiled = torch.compile(layouts, backend="torchvk", dynamic=False)
        sizes = ((m, k), (k, n), (n,))
        with pytest.raises(Exception, match="_CompiledOnlyError"):
            compiled(*(torch.empty(size, dtype=dtype, device=vk) for size in sizes))
    assert len(modules) == 2
    validator = shutil.which("spirv-val")
    if validator is None:
        pytest.skip("compiled; spirv-val is not installed")
    for number, module in enumerate(modules):
        path = tmp_path / f"{number}.spv"
        path.write_bytes(module)
        command = [validator, "--target-env", "vulkan1.3", "--scalar-block-layout", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Invalid capability operand" in done.stderr:
            pytest.skip("compiled; this spirv-val is older than cooperative matrices")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("size", [(64, 72, 64), (35, 18, 21)], ids=str)
def test_any_layout(
    vk: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    small: CooperativeConfig,
    size: tuple[int, int, int],
) -> None:
    use(monkeypatch, small)
    m, n, k = size
    inputs = values(m, k, dtype=HALF), values(k, n, dtype=HALF), values(n, dtype=HALF)
    check(layouts, *inputs, device=vk)


def test_misaligned_operands(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, small: CooperativeConfig
) -> None:
    use(monkeypatch, small)
    compiled = torch.compile(torch.addmm, backend="torchvk", dynamic=False)
    for offset in (0, 1):
        bias, a, b = (values(n + offset, dtype=HALF)[offset:] for n in (40, 32 * 24, 24 * 40))
        check(torch.addmm, bias, a.view(32, 24), b.view(24, 40), device=vk, compiled=compiled)


@pytest.mark.parametrize("parts", [1, 3])
def test_batches_and_split_k(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, small: CooperativeConfig, parts: int
) -> None:
    use(monkeypatch, dataclasses.replace(small, split_k=parts))

    def products(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        batched = torch.baddbmm(residual, a.expand(2, *a.shape), b.expand(2, *b.shape), beta=0.5)
        return torch.nn.functional.gelu(torch.addmm(bias, a, b)) + residual, batched

    sizes = ((34, 70), (70, 36), (36,), (34, 36))
    check(products, *(values(*size, dtype=HALF) for size in sizes), device=vk)


def test_infinities_and_nan(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, small: CooperativeConfig
) -> None:
    use(monkeypatch, small)
    a, b = values(20, 13, dtype=HALF), values(13, 24, dtype=HALF)
    a[11] = 0
    a[11, :3], b[:3] = (
        60000.0,
        torch.tensor([1.0, 1.0, -1.0])[:, None],
    )  # a sum on its way exceeds float16
    a[3, 5], a[7, 12], b[0, 9] = torch.inf, torch.nan, -torch.inf
    check(torch.mm, a, b, device=vk)


def test_indices_of_64_bits(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, small: CooperativeConfig
) -> None:
    use(monkeypatch, small)
    monkeypatch.setattr(TemplateKernel, "_choose_index_dtype", lambda _: torch.int64)
    sizes = ((36,), (40, 33), (33, 36))
    check(torch.addmm, *(values(*size, dtype=HALF) for size in sizes), device=vk)


def test_dynamic_sizes(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, small: CooperativeConfig
) -> None:
    use(monkeypatch, small)
    compiled = torch.compile(torch.mm, backend="torchvk", dynamic=True)
    for m, n, k in ((9, 17, 14), (64, 64, 32), (33, 70, 50)):
        inputs = values(m, k, dtype=HALF), values(k, n, dtype=HALF)
        check(torch.mm, *inputs, device=vk, compiled=compiled)


@pytest.mark.usefixtures("precision")
def test_eager_products_follow_the_precision(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def tiles(*_: Any) -> list[CooperativeConfig]:
        asked.append(torch.get_float32_matmul_precision() == "high")
        return []

    monkeypatch.setattr(matmul, "cooperative_tiles_for", tiles)
    eager.clear()
    a = torch.ones(19, 23, device=vk)
    for allowed in ("highest", "high", "highest", "high", "high"):
        torch.set_float32_matmul_precision(allowed)
        a @ a.t()
    assert asked == [False, True]
    a[1:] @ a.t()  # from here on with dynamic sizes, of either precision
    torch.set_float32_matmul_precision("highest")
    a[1:] @ a.t()
    assert asked == [False, True, True, False]
