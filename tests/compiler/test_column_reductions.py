"""Sums over the rows of a matrix: who reads what beside whom, and loops whose rounds are under way together.

In: tall matrices with vectors along either axis. Out: the CPU's results. Forbidden: times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvk_compile import config
from torchvk_compile.codegen import layout

Check = Callable[..., None]


@pytest.fixture(autouse=True)
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loops as GPUs run them, whatever device this is."""
    monkeypatch.setattr(layout, "rounds_ahead", lambda profile, lanes: 4 if lanes == 1 else 2)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def _tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _weight_gradients(dy: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> Any:
    """Of a normalisation: the scale of each row stands beside two matrices."""
    return (dy * x * scale).sum(0), dy.sum(0)


@pytest.mark.parametrize("shape", [(1000, 40), (4096, 64), (7, 300), (1025, 3), (20000, 1)])
def test_gradients_of_weights(assert_close_like_cpu: Check, shape: tuple[int, int]) -> None:
    assert_close_like_cpu(
        _weight_gradients,
        _tensor(*shape),
        _tensor(*shape, seed=1),
        _tensor(shape[0], 1, seed=2),
        eager=False,
        rtol=1e-4,
        atol=1e-3,
    )


def test_neighbours_read_neighbouring_columns(vk: Any, tmp_path: Path) -> None:
    """A vector along the rows is no reason to walk down the columns of the matrices."""
    matrix, scale = torch.empty(4096, 256, device=vk), torch.empty(4096, 1, device=vk)
    with config.patch(dump_shaders=tmp_path):
        torch.compile(_weight_gradients, backend="torchvk")(matrix, matrix, scale)
    source = "".join(path.read_text() for path in tmp_path.glob("*.slang"))
    assert "reduceColumn" in source
    assert "reduceRow" not in source


@pytest.mark.parametrize("length", [1, 255, 4096, 30011])
def test_long_rows(assert_close_like_cpu: Check, length: int) -> None:
    def reduce(x: torch.Tensor) -> Any:
        reduced = x.sum(-1), x.amax(-1), x.argmin(-1), (x > 3).any(-1), x.std(-1, correction=0)
        return (*reduced, x.softmax(-1), (x.t() * 2).log_softmax(0))

    assert_close_like_cpu(reduce, _tensor(2, length), eager=False, rtol=1e-4, atol=1e-3)


def test_a_gpu_gets_enough_workgroups_for_long_columns() -> None:
    gpu = SimpleNamespace(compute_units=36, device_type="discrete")
    chosen = layout.reduction_layout(gpu, 1024, 65536, inner=False, static_length=True)
    assert (chosen.rows, chosen.workgroup_size) == (32, 256)
    plenty = layout.reduction_layout(gpu, 1 << 20, 64, inner=False, static_length=True)
    assert plenty.rows == 256
