"""Rows that stay in registers: the layout of a GPU, whose invocations share a row across subgroups, run anywhere.

In: rows around every limit of the layout. Out: the CPU's results. Forbidden: relying on the device's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchvk_compile.codegen import layout, resident

Check = Callable[..., None]


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Keep rows in registers as GPUs do; the rounds of every kernel that does."""
    rounds: list[int] = []
    assemble = resident.assemble

    def noting(segments: Any, loop: resident.Rounds) -> Any:
        rounds.append(loop.count)
        return assemble(segments, loop)

    monkeypatch.setattr(layout, "widest_kept_row", lambda profile: 1024)
    monkeypatch.setattr(resident, "assemble", noting)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield rounds


def _tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [33, 1023, 1024, 4100])
def test_normalisations(assert_close_like_cpu: Check, kept: list[int], width: int) -> None:
    def normalise(x: torch.Tensor, weight: torch.Tensor) -> Any:
        shifted = x + 1
        return (
            F.softmax(x, -1),
            F.log_softmax(x * 2, -1),
            F.layer_norm(shifted, (width,), weight, weight),
            F.rms_norm(x, (width,), weight, eps=1e-6),
            x.argmax(-1),
            x.var(-1),
        )

    assert_close_like_cpu(
        normalise, _tensor(5, width), _tensor(width), eager=False, rtol=1e-4, atol=1e-5
    )
    assert kept


@pytest.mark.parametrize("width", [36, 1000])
def test_gradients(assert_close_like_cpu: Check, kept: list[int], width: int) -> None:
    def gradients(x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor) -> Any:
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = F.layer_norm(F.rms_norm(x.softmax(-1), (width,), weight), (width,), weight)
        return torch.autograd.grad(y, (x, weight), dy)

    assert_close_like_cpu(
        torch.no_grad()(lambda *tensors: torch.enable_grad()(gradients)(*tensors)),
        _tensor(6, width),
        _tensor(width, seed=1),
        _tensor(6, width, seed=2),
        eager=False,
        rtol=2e-3,
        atol=1e-4,
    )
    assert kept
