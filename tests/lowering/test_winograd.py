"""Winograd's method gives the convolutions that plain sums give, and is never taken unasked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchvk_compile import config
from torchvk_compile.codegen.winograd import WinogradConfig
from torchvk_compile.lowering import convolution
from torchvk_compile.plan.executor import CompiledPlan, loaded_plans
from torchvk_compile.tuning import choice, trial
from torchvk_compile.tuning.problem import Problem
from torchvk_compile.tuning.trial import Times

pytestmark = pytest.mark.usefixtures("fresh_graphs")

# A result may be this many times as far from float64 as float32's rounding of the largest element.
_UNITS = 16

CASES = [
    # images, channels, outputs, height, width, padding
    (2, 17, 19, 7, 9, 1),
    (1, 16, 18, 5, 6, 0),
    (3, 20, 16, 1, 13, 2),
    (1, 33, 16, 8, 8, (0, 2)),
]


@pytest.fixture
def winograd(monkeypatch: pytest.MonkeyPatch) -> list[WinogradConfig]:
    """Take the method wherever it is a candidate; returns what was taken."""
    taken: list[WinogradConfig] = []

    def take(default: Any, others: Callable[[], Sequence[Any]], problem: Any) -> Any:
        found = [other for other in others() if isinstance(other, WinogradConfig)]
        taken.extend(found)
        return found[0] if found else default

    monkeypatch.setattr(convolution, "chosen", take)
    return taken


def layer(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, padding: Any) -> torch.Tensor:
    return F.conv2d(x, w, bias, padding=padding) * 2 + 1


def inputs(case: tuple[Any, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    images, channels, outputs, height, width, _ = case
    sizes = (images, channels, height, width), (outputs, channels, 3, 3), (outputs,)
    return [torch.randn(size).to(dtype) for size in sizes]


def results(
    fn: Callable[..., torch.Tensor], device: Any, dtype: torch.dtype, values: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The output and the gradient of the first input, in float64."""
    leaves = [value.to(dtype).to(device) for value in values]
    leaves[0].requires_grad_()
    output = fn(*leaves)
    output.backward(torch.linspace(-1, 1, output.numel()).view(output.shape).to(output))
    assert leaves[0].grad is not None
    return [output.detach().cpu().double(), leaves[0].grad.cpu().double()]


def check(fn: Callable[..., torch.Tensor], values: list[torch.Tensor], **settings: Any) -> None:
    dtype = values[0].dtype
    compiled = torch.compile(fn, backend="torchvk", **settings)
    exact = results(fn, "cpu", torch.float64, values)
    for own, expected in zip(results(compiled, "vk", dtype, values), exact, strict=True):
        atol = _UNITS * torch.finfo(dtype).eps * expected.abs().max().item()
        torch.testing.assert_close(own, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_odd_sizes_and_paddings(
    vk: torch.device, winograd: list[WinogradConfig], case: tuple[Any, ...]
) -> None:
    check(lambda x, w, b: layer(x, w, b, case[-1]), inputs(case), dynamic=False)
    assert len(winograd) == 2, "forward and input gradient"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(vk: torch.device, winograd: list[WinogradConfig], dtype: torch.dtype) -> None:
    check(lambda x, w, b: layer(x, w, b, 1), inputs(CASES[0], dtype), dynamic=False)
    assert len(winograd) == 2


def test_strides_transposition_and_dynamic_sizes(
    vk: torch.device, winograd: list[WinogradConfig]
) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        thin = F.conv2d(x[:, :, ::2, 1:], w.mT, bias, padding=1)
        return F.conv_transpose2d(thin, w, padding=1)

    compiled = torch.compile(function, backend="torchvk", dynamic=True)
    for case in ((2, 16, 16, 9, 10), (1, 16, 16, 12, 7)):
        values = inputs((*case, None))
        (own, _), (expected, _) = (
            results(compiled, vk, torch.float32, values),
            results(function, "cpu", torch.float64, values),
        )
        scale = expected.abs().max().item()
        torch.testing.assert_close(own, expected, rtol=0, atol=2e-6 * scale)
    assert winograd


def test_what_it_does_not_apply_to(vk: torch.device, winograd: list[WinogradConfig]) -> None:
    x, w = torch.randn(1, 16, 6, 6, device=vk), torch.randn(16, 16, 3, 3, device=vk)
    last = x.contiguous(memory_format=torch.channels_last)
    others: list[Callable[[], torch.Tensor]] = [
        lambda: F.conv2d(x, w, stride=2),
        lambda: F.conv2d(x, w, dilation=2),
        lambda: F.conv2d(x, w, padding=3),
        lambda: F.conv2d(x, w[:, :4], groups=4),
        lambda: F.conv2d(x, w[:, :, :2]),
        lambda: F.conv2d(x[:, :8], w[:, :8]),
        lambda: F.conv2d(x.double(), w.double()),
        lambda: F.conv2d(last, w),
    ]
    torch.compile(lambda: [other() for other in others], backend="torchvk", dynamic=False)()
    with config.patch(winograd=False):
        torch.compile(lambda: F.conv2d(x, w), backend="torchvk", dynamic=False)()
    assert not winograd


def plans_of(run: Callable[[], Any]) -> list[CompiledPlan]:
    before = loaded_plans()
    run()
    return [plan for plan in loaded_plans() if plan not in before]


def test_bias_and_activation_are_part_of_the_last_kernel(
    vk: torch.device, winograd: list[WinogradConfig]
) -> None:
    values = [value.to(vk) for value in inputs(CASES[0])]
    compiled = torch.compile(layer, backend="torchvk", dynamic=False)
    (plan,) = plans_of(lambda: compiled(*values, 1))
    assert len(plan.plan.steps) == 4, "two transforms, the products, the outputs"
    assert any(str(winograd[0]) == kernel.configuration for kernel in plan.plan.kernels)


def test_infinities(
    vk: torch.device, winograd: list[WinogradConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They reach the outputs that plain sums let them reach, as NaN; by default they stay infinities."""
    x, w, bias = inputs((1, 16, 16, 10, 10, 1))
    x[0, 3, 4, 5] = torch.inf
    x[0, 5, 8, 0] = torch.nan
    expected = F.conv2d(x, w, bias, padding=1)

    def run() -> torch.Tensor:
        torch._dynamo.reset()
        compiled = torch.compile(F.conv2d, backend="torchvk", dynamic=False)
        return compiled(x.to(vk), w.to(vk), bias.to(vk), padding=1).cpu()

    own = run()
    assert winograd
    assert torch.equal(own.isfinite(), expected.isfinite())
    assert expected.isinf().any() and own[expected.isinf()].isnan().any()
    monkeypatch.setattr(convolution, "chosen", choice.chosen)
    torch.testing.assert_close(run(), expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_it_can_be_measured(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def measure(problem: Problem, candidates: Sequence[Any]) -> dict[Any, Times]:
        measured.extend(candidates)
        return {c: Times((1.0 + isinstance(c, WinogradConfig),) * 5) for c in candidates}

    monkeypatch.setattr(trial, "measure", measure)
    monkeypatch.setattr(choice, "_known", {})
    x, w, bias = (value.to(vk) for value in inputs((1, 16, 16, 11, 11, 1)))
    torch.compile(layer, backend="torchvk", mode="max-autotune", dynamic=False)(x, w, bias, 1)
    assert isinstance(measured[1], WinogradConfig) and not isinstance(measured[0], WinogradConfig)
