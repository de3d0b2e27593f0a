"""A NaN or an infinity, in an input or in a gradient, stays within the windows that have it, as on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytestmark = pytest.mark.usefixtures("fresh_graphs")

OPERATORS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "average": (lambda x: F.avg_pool2d(x, 3, 2, 1), (1, 2, 7, 8)),
    "average, ceil": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (1, 2, 8, 9),
    ),
    "average, wide": (lambda x: F.avg_pool2d(x, 7, 2, 3), (1, 2, 17, 16)),
    "average, wider than a loop's step": (lambda x: F.avg_pool1d(x, 19, 1, 9), (1, 2, 45)),
    "average, volumes": (lambda x: F.avg_pool3d(x, 2), (1, 2, 5, 7, 6)),
    "average, overlapping volumes": (
        lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
        (1, 2, 5, 6, 7),
    ),
    "norm, volumes": (lambda x: F.lp_pool3d(x, 2, 2), (1, 2, 5, 6, 7)),
    "adaptive, rows": (lambda x: F.adaptive_avg_pool1d(x, 3), (1, 2, 7)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (1, 2, 7, 10)),
    "adaptive, larger": (lambda x: F.adaptive_avg_pool2d(x, (7, 9)), (1, 2, 4, 3)),
    "adaptive, volumes": (lambda x: F.adaptive_avg_pool3d(x, (3, 2, 4)), (1, 2, 7, 6, 5)),
    "max": (lambda x: F.max_pool2d(x, 3, 2, 1), (1, 2, 7, 8)),
    "area": (lambda x: F.interpolate(x, size=3, mode="area"), (1, 2, 7, 8)),
    "replicate": (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), (1, 2, 5, 6)),
    "reflect": (lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), (1, 2, 5, 6)),
    "circular": (lambda x: F.pad(x, (2, 1, 0, 3), mode="circular"), (1, 2, 5, 6)),
    "unfold": (lambda x: F.unfold(x, (3, 2), (1, 2), (1, 0), (2, 1)), (1, 2, 8, 9)),
    "fold": (lambda x: F.fold(x, (4, 4), 3), (1, 9, 4)),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), (1, 4, 3, 4)),
    "softshrink": (F.softshrink, (9,)),
    "hardshrink": (F.hardshrink, (9,)),
}


def _with_nonfinite(x: Tensor) -> Tensor:
    """`x` with a NaN in its first place and an infinity in its middle."""
    flat = x.flatten()
    flat[0], flat[flat.numel() // 2] = math.nan, math.inf
    return flat.reshape(x.shape)


@pytest.mark.parametrize(
    "compiled, dtype",
    [(False, torch.float32), (True, torch.float32), (True, torch.bfloat16)],
    ids=["eager", "compiled", "compiled in 16 bits"],
)
@pytest.mark.parametrize("name", OPERATORS)
def test_nonfinite(vk: torch.device, name: str, compiled: bool, dtype: torch.dtype) -> None:
    function, size = OPERATORS[name]
    on_vk = torch.compile(function, backend="torchvk") if compiled else function
    finite = (torch.rand(*size) - 0.4).to(dtype)
    for where in ("input", "gradient"):
        x = _with_nonfinite(finite) if where == "input" else finite
        outcomes = []
        # The CPU has some of the operators in 32 bits only.
        for own, run in ((x.float(), function), (x.to(vk), on_vk)):
            own = own.detach().clone().requires_grad_()
            output = run(own)
            grad = torch.ones(output.shape, dtype=own.dtype)
            grad = _with_nonfinite(grad) if where == "gradient" else grad
            output.backward(grad.to(own.device))
            assert own.grad is not None
            outcomes.append((output.detach().cpu(), own.grad.cpu()))
        for mine, theirs in zip(outcomes[1], outcomes[0], strict=True):
            message = f"{where} with a NaN and an infinity"
            torch.testing.assert_close(
                mine, theirs.to(dtype), equal_nan=True, msg=lambda text, of=message: f"{of}: {text}"
            )
