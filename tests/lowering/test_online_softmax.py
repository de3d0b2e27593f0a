"""Online softmax: the layout of a GPU run anywhere, on rows with every kind of number.

In: rows around the vectors' ends, infinities, NaN. Out: the CPU's results, and one loop along the row.
Forbidden: relying on the device's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchvk_compile.codegen.reductions import ReductionCodegen
from torchvk_compile.lowering import online_softmax

Check = Callable[..., None]
ROWS = 1024


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Use one pass for short rows, too; the values that are reduced so."""
    torch._dynamo.reset()
    found: list[str] = []
    reduce = ReductionCodegen._online_softmax

    def noting(self: Any, value: Any) -> Any:
        found.append(str(value))
        return reduce(self, value)

    monkeypatch.setattr(online_softmax, "pays", lambda profile: True)
    monkeypatch.setattr(online_softmax, "SHORTEST", 32)
    monkeypatch.setattr(ReductionCodegen, "_online_softmax", noting)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield found


def _rows(width: int) -> torch.Tensor:
    x = 20 * torch.randn(ROWS, width, generator=torch.Generator().manual_seed(0))
    infinite = float("inf")
    x[0] = -infinite
    x[1, ::2] = -infinite
    x[2, :-1] = -infinite
    x[3, 5] = infinite
    x[4, 5:7] = infinite
    x[5, 7] = float("nan")
    x[6, -1] = float("nan")
    x[6, 0] = infinite
    x[7] = torch.linspace(-300, 300, width)
    x[8] = 0
    x[9, :8] = -infinite
    return x


@pytest.mark.parametrize("width", [33, 64, 99, 260])
def test_sums_of_exponentials(assert_close_like_cpu: Check, online: list[str], width: int) -> None:
    assert_close_like_cpu(
        lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True).log(),
        _rows(width),
        eager=False,
        rtol=1e-5,
        atol=1e-6,
    )
    assert len(online) == 1


def test_maxima_are_the_rows_own(assert_close_like_cpu: Check, online: list[str]) -> None:
    def both(x: torch.Tensor) -> Any:
        largest = x.amax(-1, keepdim=True)
        return largest, (x - largest).exp().sum(-1, keepdim=True)

    assert_close_like_cpu(both, _rows(77), eager=False, rtol=1e-5, atol=1e-6)
    assert len(online) == 1


def test_cross_entropy_and_its_gradient(assert_close_like_cpu: Check, online: list[str]) -> None:
    target = torch.randint(0, 130, (ROWS,), generator=torch.Generator().manual_seed(1))

    def gradient(x: torch.Tensor, target: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(x, target)
        return loss.detach(), *torch.autograd.grad(loss, x)

    x = 3 * torch.randn(ROWS, 130, generator=torch.Generator().manual_seed(2))
    assert_close_like_cpu(
        torch.no_grad()(lambda *tensors: torch.enable_grad()(gradient)(*tensors)),
        x,
        target,
        eager=False,
        rtol=1e-4,
        atol=1e-7,
    )
    assert online


def test_exponentials_that_are_needed_are_computed_once(
    assert_close_like_cpu: Check, online: list[str]
) -> None:
    x = torch.randn(ROWS, 50, generator=torch.Generator().manual_seed(3))
    assert_close_like_cpu(lambda x: x.softmax(-1), x, eager=False)
    assert not online


def test_a_number_is_a_row_of_one(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(lambda x: F.log_softmax(x, 0, dtype=torch.float64), torch.tensor(0.7))
    assert_close_like_cpu(lambda x: F.softmax(x, -1), torch.tensor(0.7, requires_grad=True))
