"""Fused pointwise kernels: shapes, strides, dtypes, masks, indirect accesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Check = Callable[..., None]
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def _tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 255, 256, 1023, 1024, 1025, 100_003])
def test_every_tail(assert_close_like_cpu: Check, size: int) -> None:
    assert_close_like_cpu(
        lambda x, y: (x * 2 + y, x > y), _tensor(size), _tensor(size, seed=1), eager=False
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_dtypes(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def chain(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x * y).abs().sqrt(), torch.where(x > y, x, y), -x, x + y, x / (y * y + 1)

    assert_close_like_cpu(
        chain, _tensor(7, 33, dtype=dtype), _tensor(7, 33, dtype=dtype, seed=1), eager=False
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_dtypes_wrap_and_divide_like_torch(
    assert_close_like_cpu: Check, dtype: torch.dtype
) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor(
        [info.min, info.min + 1, -7 if info.min else 7, 0, 7, info.max - 1, info.max], dtype=dtype
    )
    y = torch.tensor([3, 2, 3, 5, 4, 7, 1], dtype=dtype)

    def operations(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, x - y, x * y, x // y, x % y, x & y, x | y, x ^ y, x < y, x.to(torch.float32)

    assert_close_like_cpu(operations, x, y, eager=False)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_common_divisors_and_multiples(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    low = 0 if dtype is torch.uint8 else -11
    a, b = torch.arange(low, 24).to(dtype), torch.arange(low, 11).to(dtype)[:, None]
    assert_close_like_cpu(lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), a, b)


def test_mixed_dtypes_promote(assert_close_like_cpu: Check) -> None:
    x, y, z = _tensor(40, dtype=torch.float16), _tensor(40), torch.arange(40)
    assert_close_like_cpu(lambda x, y, z: (x + y, x * z, z > 3.5, z / 3), x, y, z, eager=False)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[1:, 3:],
        lambda x: x[::2, ::3],
        lambda x: x[:, 0],
        lambda x: x.flip(0),
        lambda x: x[:1].expand(9, -1),
        lambda x: x.as_strided((5, 5), (3, 2), 1),
        lambda x: x.unfold(1, 4, 2),
        lambda x: x.reshape(-1)[1:],
    ],
    ids=[
        "transpose",
        "slice",
        "step",
        "column",
        "flip",
        "expand",
        "as_strided",
        "unfold",
        "misaligned",
    ],
)
def test_views(assert_close_like_cpu: Check, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert_close_like_cpu(
        lambda x: (view(x) * 2, view(x).contiguous() + 1), _tensor(12, 17), eager=False
    )


def test_views_of_another_width(assert_close_like_cpu: Check) -> None:
    def look(x: torch.Tensor, half: torch.Tensor, byte: torch.Tensor) -> tuple[torch.Tensor, ...]:
        narrow = (x.view(torch.int16), x.view(torch.uint8), x.double().view(torch.int32))
        wide = (half.view(torch.float32), half.view(torch.int64), byte.view(torch.int32))
        return *(y + 1 for y in (*narrow, *wide[1:])), wide[0] * 1

    x, half = torch.arange(12.0).view(3, 4) - 5, torch.arange(24.0).view(3, 8).half() - 7
    byte = torch.arange(32).to(torch.uint8).view(4, 8) * 8
    assert_close_like_cpu(look, x, half, byte, eager=False)


def test_a_misaligned_input_gives_the_same_as_an_aligned_one(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="torchvk")
    base = _tensor(1025)
    on_device = base.to(vk)
    for offset in (0, 1, 2, 3, 4):
        torch.testing.assert_close(
            compiled(on_device[offset : offset + 1020]).cpu(), base[offset : offset + 1020] * 2 + 1
        )


def test_padding_and_concatenation_use_masked_loads(assert_close_like_cpu: Check) -> None:
    def masked(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (
            F.pad(x, (1, 2, 3, 4), value=2.5) * 2,
            torch.cat([x, y, x], 1) + 1,
            torch.roll(x, 3, 1),
        )

    assert_close_like_cpu(masked, _tensor(6, 9), _tensor(6, 4, seed=1), eager=False)


def test_indirect_loads(assert_close_like_cpu: Check) -> None:
    table, rows = _tensor(20, 9), torch.tensor([[0, -1, 19], [5, 5, -20]])
    columns = torch.randint(0, 9, (20, 4))

    def indirect(table: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> Any:
        return table[rows] * 2, table.gather(1, columns), F.embedding(rows.abs() % 20, table)

    assert_close_like_cpu(indirect, table, rows, columns, eager=False)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
)
def test_scatter_with_duplicates(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    # Whole numbers, so that the order of additions does not show.
    values = torch.randint(-4, 5, (64, 8)).to(dtype)
    rows = torch.randint(0, 5, (64,))

    def scatter(values: torch.Tensor, rows: torch.Tensor) -> Any:
        zeros = torch.zeros(5, 8, dtype=values.dtype, device=values.device)
        return zeros.index_put((rows,), values, accumulate=True), zeros.index_add(0, rows, values)

    assert_close_like_cpu(scatter, values, rows, eager=False)


def test_inputs_are_mutated_in_place(assert_close_like_cpu: Check) -> None:
    def mutate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y).mul_(2)
        y[0].zero_()
        return x + y

    assert_close_like_cpu(mutate, _tensor(5, 6), _tensor(5, 6, seed=1), eager=False)


def test_outputs_that_are_inputs_or_views(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: (x, x.view(-1), x + 1, x.t()), backend="torchvk")
    x = _tensor(4, 5).to(vk)
    same, flat, plus, transposed = compiled(x)
    assert same.data_ptr() == x.data_ptr() == flat.data_ptr() == transposed.data_ptr()
    assert transposed.stride() == (1, 5)
    torch.testing.assert_close(plus.cpu(), x.cpu() + 1)


def test_factories_inside_the_graph(assert_close_like_cpu: Check) -> None:
    def make(x: torch.Tensor) -> Any:
        device = x.device
        return (
            torch.arange(3, 20, 4, device=device),
            torch.full((2, 3), 7, device=device),
            x * torch.ones(5, device=device),
        )

    assert_close_like_cpu(make, _tensor(5), eager=False)


def test_host_scalars_reach_kernels(vk: torch.device) -> None:
    compiled = torch.compile(lambda x, a, b, c: x * a + b - c.to(x.dtype), backend="torchvk")
    x = _tensor(9)
    for a, b, c in [(2.5, 3, True), (-1.0, 7, False)]:
        scalars = torch.tensor(a), torch.tensor(b), torch.tensor(c)
        torch.testing.assert_close(compiled(x.to(vk), *scalars).cpu(), x * a + b - float(c))


def test_more_workgroups_than_one_row_of_the_grid_holds(vk: torch.device) -> None:
    size = 65535 * 256 * 4 + 5
    compiled = torch.compile(lambda x: x + 1, backend="torchvk")
    result = compiled(torch.zeros(size, dtype=torch.uint8, device=vk))
    assert int(result.cpu().sum()) == size


def test_more_than_32_inputs_in_one_kernel(assert_close_like_cpu: Check) -> None:
    tensors = [_tensor(33, seed=seed) for seed in range(40)]
    assert_close_like_cpu(lambda *xs: sum(xs[1:], xs[0]), *tensors, eager=False)
