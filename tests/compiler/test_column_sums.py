"""Sums over rows inside the kernel that reduces the rows, in the layout of a GPU, run anywhere.

In: gradients of normalisations and what else has sums in both directions. Out: the CPU's results from one kernel that
reads the matrices once. Forbidden: relying on the device's own choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._inductor.runtime.hints import DeviceProperties

from torchvk_compile.codegen import layout
from torchvk_compile.codegen.kernel import SlangKernel

Check = Callable[..., None]


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Choose as for a GPU with few compute units; for every kernel that sums over rows, how many rows it walks."""
    walks: list[int] = []
    take = SlangKernel.take_column_sums

    def noting(self: SlangKernel, nodes: Any) -> bool:
        took = take(self, nodes)
        walks.extend([self.layout.walk] * took)
        return took

    def parts(profile: Any, rows: int) -> int:
        return next(parts for parts in range(max(rows // 16, 1), 0, -1) if rows % parts == 0)

    create = DeviceProperties.create
    monkeypatch.setattr(
        DeviceProperties, "create", lambda device: create(device)._replace(multi_processor_count=64)
    )
    monkeypatch.setattr(layout, "widest_kept_row", lambda profile: 1024)
    monkeypatch.setattr(layout, "fewest_walking_groups", lambda profile: 1)
    monkeypatch.setattr(layout, "parts_of_sums", parts)
    monkeypatch.setattr(SlangKernel, "take_column_sums", noting)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield walks


def _tensor(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _gradients(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The gradients of a function of all its tensors but the last, which is the result's."""

    @torch.enable_grad()
    def gradients(*tensors: torch.Tensor) -> Any:
        *inputs, dy = (tensor.detach() for tensor in tensors)
        inputs = [tensor.requires_grad_() for tensor in inputs]
        return torch.autograd.grad(function(*inputs), inputs, dy)

    return gradients


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps=1e-6)


@pytest.mark.parametrize("width", [48, 100, 129, 768, 1023, 2048])
def test_layer_norm(assert_close_like_cpu: Check, taken: list[int], width: int) -> None:
    tensors = _tensor(512, width), _tensor(width, seed=1), _tensor(width, seed=2)
    dy = _tensor(512, width, seed=3)
    assert_close_like_cpu(_gradients(_layer_norm), *tensors, dy, eager=False, rtol=1e-4, atol=2e-4)
    assert taken == [16]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(assert_close_like_cpu: Check, taken: list[int], dtype: torch.dtype) -> None:
    tensors = [_tensor(512, 256, dtype=dtype), _tensor(256, seed=1, dtype=dtype)]
    dy = _tensor(512, 256, seed=3, dtype=dtype)
    step = torch.finfo(dtype).eps
    assert_close_like_cpu(
        _gradients(_rms_norm), *tensors, dy, eager=False, rtol=4 * step, atol=64 * step
    )
    assert taken == [16]


@pytest.mark.parametrize("shape", [(8, 64, 96), (4, 4, 64, 60), (1024, 128)])
def test_leading_dimensions(
    assert_close_like_cpu: Check, taken: list[int], shape: tuple[int, ...]
) -> None:
    tensors = _tensor(*shape), _tensor(shape[-1], seed=1)
    dy = _tensor(*shape, seed=3)
    assert_close_like_cpu(_gradients(_rms_norm), *tensors, dy, eager=False, rtol=1e-4, atol=2e-4)
    assert taken


def test_neighbours_are_fused(assert_close_like_cpu: Check, taken: list[int]) -> None:
    def block(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        return F.gelu(_layer_norm(x + residual, weight, bias)) + residual

    tensors = _tensor(512, 96), _tensor(512, 96, seed=4), _tensor(96, seed=1), _tensor(96, seed=2)
    dy = _tensor(512, 96, seed=3)
    assert_close_like_cpu(_gradients(block), *tensors, dy, eager=False, rtol=1e-4, atol=3e-4)
    assert taken


def test_what_the_rows_kernel_makes(assert_close_like_cpu: Check, taken: list[int]) -> None:
    def squared(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return _layer_norm(x, weight, bias).square() * x

    tensors = _tensor(512, 96), _tensor(96, seed=1), _tensor(96, seed=2), _tensor(512, 96, seed=3)
    assert_close_like_cpu(_gradients(squared), *tensors, eager=False, rtol=1e-3, atol=3e-3)
    assert taken == [16]


def test_several_groups_of_sums(assert_close_like_cpu: Check, taken: list[int]) -> None:
    def sums(x: torch.Tensor, y: torch.Tensor) -> Any:
        first = (x * y).sum(-1, keepdim=True) * x
        second = (x + y).amax(-1, keepdim=True) - y
        return x.sum(0), first, (x * y).sum(0), second, y.sum(0), (first * second).sum(0)

    tensors = _tensor(512, 96), _tensor(512, 96, seed=1)
    assert_close_like_cpu(sums, *tensors, eager=False, rtol=1e-3, atol=1e-2)
    assert taken


def test_softmax_with_a_bias(assert_close_like_cpu: Check, taken: list[int]) -> None:
    def biased(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (x + bias).softmax(-1)

    tensors = _tensor(512, 200), _tensor(200, seed=1), _tensor(512, 200, seed=3)
    assert_close_like_cpu(_gradients(biased), *tensors, eager=False, rtol=1e-4, atol=1e-5)


def test_both_directions_forward(assert_close_like_cpu: Check, taken: list[int]) -> None:
    def both(x: torch.Tensor) -> Any:
        return x.sum(-1), x.sum(0), (x * x).sum(0), x - x.amax(-1, keepdim=True)

    assert_close_like_cpu(both, _tensor(512, 160), eager=False, rtol=1e-4, atol=1e-4)
    assert taken == [16]


def test_infinities_and_nan_stay_in_their_columns(
    assert_close_like_cpu: Check, taken: list[int]
) -> None:
    x = _tensor(512, 64)
    x[7, 3], x[300, 5], x[301, 5] = float("nan"), float("inf"), -float("inf")

    def sums(x: torch.Tensor) -> Any:
        return x.sum(0), x.sum(-1), x.mean(-1, keepdim=True) * x

    assert_close_like_cpu(sums, x, eager=False, rtol=1e-4, atol=1e-4)
    assert taken


def test_an_input_that_is_overwritten(vk: torch.device, taken: list[int]) -> None:
    def overwrite(x: torch.Tensor) -> torch.Tensor:
        total = x.sum(0)
        x.sub_(x.mean(-1, keepdim=True))
        return total

    x = _tensor(512, 64)
    on_vk = x.to(vk)
    total = torch.compile(overwrite, backend="torchvk")(on_vk)
    torch.testing.assert_close(total.cpu(), x.sum(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(on_vk.cpu(), x - x.mean(-1, keepdim=True), rtol=1e-4, atol=1e-5)


def test_what_does_not_divide_has_kernels_of_its_own(
    assert_close_like_cpu: Check, taken: list[int]
) -> None:
    tensors = _tensor(509, 96), _tensor(96, seed=1), _tensor(509, 96, seed=3)
    assert_close_like_cpu(_gradients(_rms_norm), *tensors, eager=False, rtol=1e-4, atol=2e-4)
    assert not taken


def test_dynamic_sizes(assert_close_like_cpu: Check, vk: torch.device) -> None:
    compiled = torch.compile(_gradients(_rms_norm), backend="torchvk", dynamic=True)
    for rows in (512, 256, 77):
        tensors = [_tensor(rows, 96), _tensor(96, seed=1), _tensor(rows, 96, seed=3)]
        expected = _gradients(_rms_norm)(*tensors)
        for got, wanted in zip(compiled(*(t.to(vk) for t in tensors)), expected, strict=True):
            torch.testing.assert_close(got.cpu(), wanted, rtol=1e-4, atol=2e-4)
