"""Eager calls that the runtime makes by itself, from the third call of a signature on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

import torchvk_compile
from torchvk_compile import errors
from torchvk_compile.device import eager, signatures

aten = torch.ops.aten


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return torch.arange(1, count + 1, dtype=dtype).reshape(shape)


def without_python(call: Callable[[], Any]) -> Any:
    """What a call returns that was made twice already, with the Python way closed."""
    call()
    call()
    with mock.patch.object(eager, "call", side_effect=AssertionError("ran in Python")):
        return call()


CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "number": lambda x, y: x + 2.5,
    "two tensors": lambda x, y: x * y,
    "one tensor twice": lambda x, y: x * x,
    "keyword": lambda x, y: torch.add(x, y, alpha=3),
    "unary, boxed": lambda x, y: torch.erfinv(x / 100),
    "reduction": lambda x, y: x.sum(1),
    "product": lambda x, y: x @ y.t(),
    "dtype": lambda x, y: x.sum(dtype=torch.float64),
    "tuple": lambda x, y: tuple(x.max(1)),
    "list": lambda x, y: torch._foreach_mul([x, y], 2.0),
    "list of lists": lambda x, y: torch._foreach_add([x, y], [y, x]),
    "broadcast": lambda x, y: x[:1] - y,
    "strided": lambda x, y: x.t() + y.t(),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_python_calls(vk: torch.device, name: str) -> None:
    call = CALLS[name]
    x, y = ramp(4, 8), ramp(4, 8).flip(0)
    expected = call(x, y)
    actual = without_python(lambda: call(x.to(vk), y.to(vk)))
    torch.testing.assert_close(
        [t.cpu() for t in actual] if isinstance(actual, (list, tuple)) else actual.cpu(),
        list(expected) if isinstance(expected, (list, tuple)) else expected,
    )


def test_writing_calls_return_what_they_wrote(vk: torch.device) -> None:
    x, out = ramp(6).to(vk), torch.empty(6, device=vk)
    assert without_python(lambda: x.mul_(2.0)) is x
    assert torch.equal(x.cpu(), ramp(6) * 8)
    assert without_python(lambda: torch.exp(x, out=out)) is out
    assert without_python(lambda: aten._foreach_neg_.default([x, out])) is None
    assert torch.equal(x.cpu(), ramp(6) * -8)


def test_numbers_that_are_equal_in_python_are_different_calls(vk: torch.device) -> None:
    x = torch.ones(3, dtype=torch.int32)
    moved = x.to(vk)
    for number in (1, True, 1.0, 0.0, -0.0, float("nan"), float("inf"), 2**20):
        for _ in range(3):
            actual = torch.div(moved, number)
        expected = torch.div(x, number)
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
        assert torch.equal(torch.signbit(actual).cpu(), torch.signbit(expected)), number
        for _ in range(3):
            kind = (moved * number).dtype
        assert kind == (x * number).dtype, number


def test_settings_of_torch_are_part_of_a_call(vk: torch.device) -> None:
    x = ramp(4, dtype=torch.int64).to(vk)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            for _ in range(3):
                assert (x / 2).dtype is dtype
        finally:
            torch.set_default_dtype(torch.float32)


def test_a_misaligned_view_after_aligned_tensors(vk: torch.device) -> None:
    x = ramp(65)
    moved = x.to(vk)
    for start in (0, 0, 0, 1, 3, 0):
        actual = moved[start : start + 60] + 1
        assert torch.equal(actual.cpu(), x[start : start + 60] + 1), start


def test_overlap_is_found_after_calls_without_it(vk: torch.device) -> None:
    x, y = ramp(32).to(vk), ramp(16).to(vk)
    without_python(lambda: x[:16].add_(y))
    without_python(lambda: x[:16].sub_(x[16:]))  # one storage, but apart
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:16].add_(x[8:24])
    before = x[:16].cpu()
    x[:16].add_(x[:16])
    assert torch.equal(x[:16].cpu(), 2 * before)


def test_parameters_and_gradients(vk: torch.device) -> None:
    weight = torch.nn.Parameter(ramp(5).to(vk))
    x = ramp(5).to(vk)
    for _ in range(4):
        weight.grad = None
        (weight * x).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad.cpu(), ramp(5))


def test_an_audit_sees_every_call(vk: torch.device) -> None:
    x = ramp(7).to(vk)
    without_python(lambda: x + 4)
    with torchvk_compile.audit() as audit:
        for _ in range(3):
            x + 4
    assert (audit.graph_calls, audit.dispatches) == (3, 3)
    (entry,) = audit.entries()
    assert entry.count == 3
    assert "test_known_calls.py" in entry.place


def test_a_call_that_finds_no_memory_leaves_the_next_one_alone(vk: torch.device) -> None:
    x = torch.ones(1 << 20, device=vk)
    without_python(lambda: x + 1)
    torch.vk.synchronize()  # type: ignore[attr-defined]
    torch.vk.empty_cache()  # type: ignore[attr-defined]
    torch.vk.set_memory_limit(torch.vk.memory_reserved())  # type: ignore[attr-defined]
    try:
        kept = []
        with pytest.raises(torch.OutOfMemoryError, match="limit"):
            for _ in range(1000):
                kept.append(x + 1)
    finally:
        torch.vk.set_memory_limit(None)  # type: ignore[attr-defined]
    assert torch.equal((x + 1)[:3].cpu(), torch.full((3,), 2.0))


def test_an_index_out_of_range_is_reported(vk: torch.device) -> None:
    x, good, bad = ramp(4).to(vk), torch.tensor([1, 3]).to(vk), torch.tensor([1, 4]).to(vk)
    without_python(lambda: torch.take(x, good))
    torch.take(x, bad)
    with pytest.raises(errors.DeviceAssertError, match="4"):
        torch.vk.synchronize()  # type: ignore[attr-defined]
    assert torch.equal(torch.take(x, good).cpu(), torch.tensor([2.0, 4.0]))


def test_threads_make_known_calls_side_by_side(vk: torch.device) -> None:
    failures: list[int] = []

    def work(seed: int) -> None:
        x = torch.full((33,), float(seed), device=vk)
        for _ in range(60):
            x = x * 1.0 + 1
        if not torch.equal(x.cpu(), torch.full((33,), seed + 60.0)):
            failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_kernel_hands_what_it_does_not_know_to_python(vk: torch.device) -> None:
    calls = eager._known_calls()
    kernel = calls.kernel(aten.add.Tensor, lambda *args, **kwargs: (args, kwargs))
    assert kernel(1, "text", key=object) == ((1, "text"), {"key": object})
    fallback = calls.fallback(lambda op, *args: (op, args))
    assert fallback(aten.mul.Tensor, 2**70) == (aten.mul.Tensor, (2**70,))
    with pytest.raises(TypeError, match="takes an operator"):
        fallback()


def test_sizes_and_numbers_that_vary(vk: torch.device) -> None:
    for size, number in ((5, 1.5), (6, 1.5), (7, 2.5), (5, 3.5)):
        x = ramp(size, 3)
        moved = x.to(vk)
        actual = without_python(lambda: torch.sub(moved, moved, alpha=number))  # noqa: B023
        assert torch.equal(actual.cpu(), x - number * x), (size, number)
        actual = without_python(lambda: moved.cumsum(0))  # noqa: B023
        assert torch.equal(actual.cpu(), x.cumsum(0)), size


def test_numbers_that_are_new_every_time_need_no_second_look(vk: torch.device) -> None:
    x = ramp(4, 2)
    moved = x.to(vk)
    for number in (0.5, 1.5):
        torch.sub(moved, moved, alpha=number)
    with mock.patch.object(signatures, "compile_call", side_effect=AssertionError("looked up")):
        for number in (2.5, -0.0, float("inf")):
            actual = torch.sub(moved, moved, alpha=number)
            torch.testing.assert_close(actual.cpu(), torch.sub(x, x, alpha=number))
    other = torch.sub(moved.double(), moved.double(), alpha=0.1)
    torch.testing.assert_close(other.cpu(), x.double() - 0.1 * x.double())
