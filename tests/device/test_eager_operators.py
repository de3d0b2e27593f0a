"""Eager operators: results like the CPU's, few compilations, safe in-place calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import torchvk_compile.backend


class Compilations:
    """Counts graphs handed to the compiler."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, vk: torch.device) -> Iterator[Compilations]:
    from torchvk_compile.device import eager

    counter = Compilations()
    original = torchvk_compile.backend.compile_graph

    def counting(*args: Any, **kwargs: Any) -> Any:
        counter.count += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(torchvk_compile.backend, "compile_graph", counting)
    eager.clear()
    yield counter
    eager.clear()


def agree(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    expected = function(*inputs)
    result = function(*(tensor.to("vk") for tensor in inputs))
    assert result.device.type == "vk"
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected)


def test_second_call_of_a_signature_does_not_compile(
    vk: torch.device, compilations: Compilations
) -> None:
    tensor = torch.arange(6.0).to(vk)
    for _ in range(3):
        tensor + 1
    assert compilations.count == 1
    (tensor + 1).view(2, 3) + 1
    assert compilations.count == 2


def test_varying_batch_compiles_twice(vk: torch.device, compilations: Compilations) -> None:
    bias = torch.arange(5.0)
    for rows in (7, 8, 9, 30, 2):
        agree(lambda x, b: x + b, torch.arange(rows * 5.0).reshape(rows, 5), bias)
    assert compilations.count == 2


def test_size_one_and_zero_after_a_dynamic_graph(vk: torch.device) -> None:
    for rows in (7, 8, 1, 0, 5):
        agree(lambda x: (x * 2).sum(1), torch.arange(rows * 3.0).reshape(rows, 3))


def test_varying_number_compiles_twice(vk: torch.device, compilations: Compilations) -> None:
    for factor in (0.1, 0.2, -0.5, 1.5, 3.0):
        agree(lambda x, f=factor: x * f, torch.arange(6.0))
    assert compilations.count == 2


def test_varying_integer_compiles_twice(vk: torch.device, compilations: Compilations) -> None:
    for number in (1, 2, -3, 2**40):
        agree(lambda x, n=number: x + n, torch.arange(6))
    assert compilations.count == 2
    for number in (0, 3, 7):
        agree(lambda x, n=number: x == n, torch.arange(6, dtype=torch.int16))
        agree(lambda x, n=number: x * n, torch.tensor(3, dtype=torch.int8))
        agree(lambda x, n=number: x - n, torch.arange(6.0))
        agree(lambda x, n=number: n - x, torch.arange(6))
        agree(lambda x, n=number: n / x, torch.arange(1, 6))
        agree(lambda x, n=number: n**x, torch.arange(6.0))
        agree(lambda x, n=number: n < x, torch.arange(6))
        agree(lambda x, n=number: x.bool() + n, torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_varying_number_keeps_torchs_promotion(vk: torch.device, dtype: torch.dtype) -> None:
    for value in (0.1, 0.7, -2.5):
        agree(lambda x, v=value: x + v, torch.arange(6).to(dtype))
        agree(lambda x, v=value: x * v, torch.tensor(3).to(dtype))
        agree(lambda x, v=value: v - x, torch.arange(6).to(dtype))
        agree(lambda x, v=value: torch.add(x, x, alpha=v), torch.arange(6.0))
        agree(lambda x, v=value: x.lerp(x + 1, v), torch.arange(6.0))
        agree(lambda x, v=value: x.clone().addcdiv_(x, x + 1, value=v), torch.arange(6.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_varying_numbers_are_not_rounded_to_16_bits(vk: torch.device, dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 101).to(dtype)
    y = x.flip(0) + 0.25
    functions: list[Callable[..., torch.Tensor]] = [
        lambda x, y, n: x * n,
        lambda x, y, n: x + n,
        lambda x, y, n: n - x,
        lambda x, y, n: x / n,
        lambda x, y, n: torch.add(x, y, alpha=n),
        lambda x, y, n: torch.addcmul(x, x, y, value=n),
        lambda x, y, n: torch.addcdiv(x, x, y, value=n),
        lambda x, y, n: torch.lerp(x, y, n),
        lambda x, y, n: torch._foreach_mul([x], n)[0],
        lambda x, y, n: x == n,
    ]
    for function in functions:
        for number in (3.14, 0.7, -0.1):
            result = function(x.to(vk), y.to(vk), number).cpu()
            expected = function(x, y, number)
            exact = function(x.double(), y.double(), number)
            error, own = ((t.double() - exact.double()).abs() for t in (result, expected))
            assert bool((error <= own.max() * 1.0001).all())
            assert result.dtype == expected.dtype


def test_varying_numbers_beyond_float32(vk: torch.device) -> None:
    for value in (3.0, 0.5, 1e300, -1e39, float("inf"), 1e-300):
        agree(lambda x, v=value: x * v, torch.tensor([1.0, -2.0]))
        agree(lambda x, v=value: x - v, torch.tensor([1.0, -2.0]))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_varying_divisors_beyond_the_dtype(vk: torch.device, dtype: torch.dtype) -> None:
    host = torch.tensor([1, 2, -7], dtype=dtype)
    for divisor in (3, 5, 2**9, 2**33, -(2**35)):
        torch.testing.assert_close((host.to(vk) / divisor).cpu(), host / divisor)


def test_negative_zero_and_nan_are_numbers_of_their_own(vk: torch.device) -> None:
    tensor = torch.ones(2, device=vk)
    assert torch.copysign(tensor, 0.0).tolist() == [1.0, 1.0]
    assert torch.copysign(tensor, -0.0).tolist() == [-1.0, -1.0]
    assert (tensor * float("nan")).isnan().all().item()
    assert (tensor * float("nan")).isnan().all().item()


def test_numbers_of_different_types_are_different_calls(vk: torch.device) -> None:
    tensor = torch.arange(3, device=vk)
    assert (tensor + 1).dtype is torch.int64
    assert (tensor + 1.0).dtype is torch.float32
    assert (tensor + True).dtype is torch.int64


def test_in_place_with_itself(vk: torch.device) -> None:
    tensor = torch.arange(4.0, device=vk)
    tensor.add_(tensor)
    tensor.mul_(tensor)
    assert tensor.tolist() == [0.0, 4.0, 16.0, 36.0]


def test_unaligned_views(vk: torch.device) -> None:
    for dtype in (torch.float32, torch.float16, torch.uint8):
        host = torch.arange(64).to(dtype)
        there = host.to(vk)
        for start in (0, 1, 2, 3, 5):
            assert torch.equal((there[start : start + 20] + 1).cpu(), host[start : start + 20] + 1)


def test_results_are_never_views_of_their_inputs(vk: torch.device) -> None:
    tensor = torch.arange(4.0, device=vk)
    for result in (tensor.clone(), tensor + 0, tensor.relu(), tensor.to(torch.float32, copy=True)):
        assert result.data_ptr() != tensor.data_ptr()


def test_dynamo_does_not_compile_what_they_run(vk: torch.device) -> None:
    x, mask = torch.arange(6.0), torch.tensor([True, False, True, True, False, True])
    torch._dynamo.reset()
    counters.clear()
    # The graph breaks where the result's size depends on the data: an eager operator runs there.
    compiled = torch.compile(lambda x, mask: x[mask] + 1, backend="torchvk")
    torch.testing.assert_close(compiled(x.to(vk), mask.to(vk)).cpu(), x[mask] + 1)
    # The function up to the break and after it, and a few frames of torch's own; over 100 with ours and generated ones.
    assert counters["frames"]["total"] < 10


def test_foreach_runs_as_one_graph(vk: torch.device, compilations: Compilations) -> None:
    hosts = [torch.arange(6.0).reshape(2, 3), torch.arange(4.0), torch.tensor(2.0)]
    theirs = [tensor.to(vk) for tensor in hosts]
    torch._foreach_mul_(hosts, 3.0)
    torch._foreach_mul_(theirs, 3.0)
    assert compilations.count == 1
    for numbers in ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]):
        torch._foreach_addcdiv_(hosts, hosts, [h + 1 for h in hosts], numbers)
        torch._foreach_addcdiv_(theirs, theirs, [t + 1 for t in theirs], numbers)
    torch._foreach_lerp_(hosts, [h + 1 for h in hosts], 0.25)
    torch._foreach_lerp_(theirs, [t + 1 for t in theirs], 0.25)
    for host, there, norm in zip(hosts, theirs, torch._foreach_norm(theirs), strict=True):
        torch.testing.assert_close(there.cpu(), host)
        torch.testing.assert_close(norm.cpu(), host.norm())


def test_calls_inside_other_modes_do_not_leak_into_the_trace(
    vk: torch.device, compilations: Compilations
) -> None:
    with torch.inference_mode():
        assert (torch.arange(3.0, device=vk) * 2).tolist() == [0.0, 2.0, 4.0]
    with torch.device("vk"), torch.no_grad():
        assert (torch.ones(3) * 3).tolist() == [3.0, 3.0, 3.0]
        assert torch.ones(3).cpu().sum().item() == 3.0
    leaf = torch.ones(3, device=vk, requires_grad=True)
    (leaf * 2).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2.0] * 3


def test_transforms(vk: torch.device) -> None:
    tensor = torch.arange(6.0, device=vk).view(2, 3)
    assert torch.vmap(torch.sum)(tensor).tolist() == [3.0, 12.0]
    assert torch.func.grad(lambda x: (x**2).sum())(tensor[0]).tolist() == [0.0, 2.0, 4.0]


def test_printing(vk: torch.device) -> None:
    assert repr(torch.tensor([1.5, -2.0]).to(vk)) == "tensor([ 1.5000, -2.0000], device='vk:0')"
    assert repr(torch.arange(3, device=vk)) == "tensor([0, 1, 2], device='vk:0')"
    assert repr(torch.tensor([True], device=vk)) == "tensor([True], device='vk:0')"
    assert "..." in repr(torch.zeros(2000, device=vk))
    assert "vk:0" in repr(nn.Parameter(torch.ones(1, device=vk)))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    ],
    ids=["SGD", "Adam", "AdamW one by one"],
)
def test_eager_training_follows_the_cpu(
    vk: torch.device, make: Callable[[Any], torch.optim.Optimizer]
) -> None:
    torch.manual_seed(0)
    here = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    there = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(vk)
    there.load_state_dict(here.state_dict())
    optimizers = make(here.parameters()), make(there.parameters())
    for rows in (5, 5, 3):
        inputs, labels = torch.randn(rows, 6), torch.randint(0, 3, (rows,))
        for model, optimizer, device in zip((here, there), optimizers, ("cpu", vk), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    for expected, parameter in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(parameter.cpu(), expected, rtol=1e-4, atol=1e-5)
