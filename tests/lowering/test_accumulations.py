"""Sums of 16-bit floats are rounded where they leave a graph: gradients that need them again keep their digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchvk_compile.lowering.accumulations import keep_accumulations

pytestmark = pytest.mark.usefixtures("fresh_graphs")

_HALVES = [torch.float16, torch.bfloat16]
Function = Callable[..., Any]


def _standardized(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred * centred).mean(-1, keepdim=True).sqrt()


def _group_norm(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    one, zero = torch.ones_like(x[:, 0]), torch.zeros_like(x[:, 0])
    return torch.native_group_norm(x[None], one, zero, 1, x.shape[0], x.shape[1], 2, 0.1)


_KINDS: dict[str, Function] = {
    "norm": lambda x: x.norm(),
    "norm of rows": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    "normalized": lambda x: F.normalize(x, dim=1),
    "standardized": _standardized,
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0), dim=1),
    "product": lambda x: (0.1 * x.abs() + 0.9).cumprod(1),  # far from overflow
    "sum of logarithms": lambda x: x.exp().cumsum(1).log(),
    "share": lambda x: x.abs() / x.abs().sum(1, keepdim=True),
}


@pytest.mark.parametrize("dtype", _HALVES)
@pytest.mark.parametrize("kind", _KINDS)
def test_gradients_are_nearer_to_the_truth_than_on_the_cpu(
    vk: torch.device, kind: str, dtype: torch.dtype
) -> None:
    function = _KINDS[kind]
    x, direction = torch.randn(8, 33).to(dtype), torch.randn(8, 33).to(dtype)

    def gradient(function: Function, place: Any) -> torch.Tensor:
        own = x.to(place).requires_grad_()
        result = function(own)
        along = direction.reshape(-1)[: result.numel()].reshape(result.shape).to(place)
        (found,) = torch.autograd.grad(result, own, along.to(result.dtype))
        return found.cpu().double()

    exact = gradient(function, torch.float64)
    mine = gradient(torch.compile(function, backend="torchvk"), vk)
    theirs = gradient(function, "cpu")
    assert (mine - exact).abs().mean() < (theirs - exact).abs().mean()


@pytest.mark.parametrize("name", ["std_mean", "var_mean"])
def test_gradients_of_any_length(vk: torch.device, name: str) -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        deviation, mean = getattr(torch, name)(x)
        (found,) = torch.autograd.grad(deviation + mean, x)
        return found

    function = torch.compile(gradient, backend="torchvk", dynamic=True)
    for length in (5, 40):
        x = torch.randn(length, 3).half()
        mine = function(x.to(vk).requires_grad_()).cpu().double()
        torch.testing.assert_close(
            mine, gradient(x.double().requires_grad_()), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("dtype", _HALVES)
def test_statistics_that_are_results_have_their_own_dtype(
    vk: torch.device, dtype: torch.dtype
) -> None:
    x = torch.randn(6, 5).to(dtype)
    actual = torch.compile(_group_norm, backend="torchvk")(x.to(vk))
    for mine, exact in zip(actual, _group_norm(x.double()), strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(
            mine.cpu().double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-3
        )


@pytest.fixture
def fake() -> Iterator[FakeTensorMode]:
    with FakeTensorMode() as mode:
        yield mode


def _rewritten(function: Function, *tensors: torch.Tensor) -> torch.fx.Graph:
    graph = make_fx(function)(*tensors).graph
    keep_accumulations(graph)
    graph.lint()
    return graph


def _dtypes(graph: torch.fx.Graph, shape: tuple[int, ...]) -> set[torch.dtype]:
    values = [node.meta["val"] for node in graph.nodes if node.op == "call_function"]
    return {value.dtype for value in values if tuple(value.shape) == shape}


def test_large_tensors_keep_their_16_bits(fake: FakeTensorMode) -> None:
    x = torch.empty(8, 64, dtype=torch.bfloat16, device="vk")
    graph = _rewritten(lambda x: (x * x.sum(1, keepdim=True).sqrt()).relu() + x, x)
    assert _dtypes(graph, (8, 1)) == {torch.float32}
    (relu,) = graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    assert relu.args[0].meta["val"].dtype == relu.meta["val"].dtype == torch.bfloat16
    assert graph.output_node().args[0].meta["val"].dtype == torch.bfloat16


def test_sums_that_are_only_results_stay_as_they_are(fake: FakeTensorMode) -> None:
    x = torch.empty(8, 64, dtype=torch.float16, device="vk")
    assert _dtypes(_rewritten(lambda x: x.sum(1), x), (8,)) == {torch.float16}


@pytest.mark.parametrize(("dtype", "device"), [(torch.float32, "vk"), (torch.float16, "cpu")])
def test_other_graphs_stay_as_they_are(
    fake: FakeTensorMode, dtype: torch.dtype, device: str
) -> None:
    x = torch.empty(8, 64, dtype=dtype, device=device)
    graph = _rewritten(lambda x: x.mean(1).sqrt() * 2, x)
    assert _dtypes(graph, (8,)) == {dtype}
