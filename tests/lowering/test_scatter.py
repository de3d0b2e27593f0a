"""Writing to computed places: duplicates, negative indices, masks, every reduction and dtype, determinism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def _small(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    x = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(seed))
    return x > 1 if dtype is torch.bool else x.to(dtype)


def _places(*shape: int, limit: int) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("dtype", DTYPES)
def test_accumulation_counts_every_duplicate(
    assert_close_like_cpu: Check, dtype: torch.dtype
) -> None:
    def accumulate(
        x: torch.Tensor, v: torch.Tensor, rows: torch.Tensor, places: torch.Tensor
    ) -> Any:
        return (
            x.index_put((rows,), v, accumulate=True),
            x.index_put((rows, rows), v[:, 0], accumulate=True),
            x.scatter_add(0, places, v),
            x.index_add(0, rows.abs(), v),
            x.put(places, v, accumulate=True),
        )

    x, v = _small(5, 7, dtype=dtype), _small(5, 7, dtype=dtype, seed=1)
    rows = torch.tensor([0, 2, -1, 2, 0])
    assert_close_like_cpu(accumulate, x, v, rows, _places(5, 7, limit=5), eager=dtype is torch.bool)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_reductions(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    kinds = ["sum", "prod", "amax", "amin"] + ["mean"] * (dtype is not torch.bool)

    def reduce(x: torch.Tensor, v: torch.Tensor, places: torch.Tensor) -> Any:
        return [
            x.scatter_reduce(0, places, v, kind, include_self=include)
            for kind in kinds
            for include in (True, False)
        ]

    x, v = _small(5, 7, dtype=dtype), _small(5, 7, dtype=dtype, seed=1)
    assert_close_like_cpu(reduce, x, v, _places(5, 7, limit=5), eager=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_index_reductions(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def reduce(x: torch.Tensor, v: torch.Tensor, rows: torch.Tensor) -> Any:
        return [
            x.index_reduce(1, rows, v, kind, include_self=include)
            for kind in ("prod", "mean", "amax", "amin")
            for include in (True, False)
        ]

    x, v = _small(3, 5, dtype=dtype), _small(3, 4, dtype=dtype, seed=1)
    assert_close_like_cpu(reduce, x, v, torch.tensor([1, 4, 1, 0]), eager=False)


def test_nan_wins_extrema(assert_close_like_cpu: Check) -> None:
    x, v = torch.randn(4), torch.tensor([1.0, torch.nan, -torch.inf, 2.0])
    places = torch.tensor([0, 0, 1, 3])

    def reduce(x: torch.Tensor, v: torch.Tensor, places: torch.Tensor) -> Any:
        return x.scatter_reduce(0, places, v, "amax"), x.scatter_reduce(0, places, v, "amin")

    assert_close_like_cpu(reduce, x, v, places)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_plain_writes(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def write(x: torch.Tensor, v: torch.Tensor, column: torch.Tensor) -> Any:
        order = torch.arange(4, -1, -1, device=x.device)
        return (
            x.scatter(1, column, v),
            x.scatter(1, column, 1),
            x.index_copy(0, order, v),
            x.index_fill(0, order[:2], 1),
            x.put(order, v.flatten()[:5]),
            x.take(column),
        )

    x, v = _small(5, 7, dtype=dtype), _small(5, 7, dtype=dtype, seed=1)
    assert_close_like_cpu(write, x, v, _places(5, 1, limit=5), eager=False)


def test_masks_as_indices(assert_close_like_cpu: Check) -> None:
    def write(x: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor) -> Any:
        one, many, sliced, added = x.clone(), x.clone(), x.clone(), x.clone()
        one[mask] = 5.0
        many[rows] = v[: 3 * 7].reshape(3, 7)
        sliced[:, mask[0]] = 2.5
        added[rows] += 1
        filled = x.masked_scatter(mask, v)
        return one, many, sliced, added, filled, x.index_put((mask,), v[:1], accumulate=True)

    x, v = torch.randn(5, 7), torch.randn(40)
    mask = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) > 0.5
    rows = torch.tensor([True, False, True, True, False])
    assert_close_like_cpu(write, x, v, mask, rows)


@pytest.mark.parametrize("length", [1, 15, 17, 100, 1025])
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_mask_up_to_the_last_element(
    assert_close_like_cpu: Check, vk: torch.device, length: int, accumulate: bool
) -> None:
    def write(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put((mask,), values, accumulate=accumulate)

    mask = torch.rand(length, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[-1] = True
    assert_close_like_cpu(write, torch.randn(length), mask, torch.randn(int(mask.sum())))
    torch.vk.synchronize()  # would raise what the kernel reported


def test_a_mask_beside_an_index(assert_close_like_cpu: Check) -> None:
    def write(x: torch.Tensor, mask: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask, columns] = 7.0
        return x

    mask = torch.tensor([True, False, True, True, False])
    assert_close_like_cpu(write, torch.randn(5, 7), mask, torch.tensor([1, 2, 6]))


def test_in_place_on_an_input(assert_close_like_cpu: Check) -> None:
    def write(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        x.index_put_((i,), v, accumulate=True)
        x.scatter_(0, i[:1].expand(1, 4), 9.0)
        # The values are the tensor itself.
        x.index_put_((i,), x[: i.shape[0]] * 2)
        return x + 1

    assert_close_like_cpu(write, torch.randn(5, 4), torch.tensor([3, 1]), torch.randn(2, 4))


def test_many_values_meet_in_half_precision(assert_close_like_cpu: Check) -> None:
    """Rounding after every addition would stop at 256 (bfloat16) and 2048 (float16)."""
    ones = torch.ones(5000)
    places = torch.zeros(5000, dtype=torch.int64)
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.zeros(2, dtype=dtype).to("vk")
        total = x.index_add(0, places.to("vk"), ones.to(dtype).to("vk"))
        assert total.cpu().tolist() == [float(torch.tensor(5000.0).to(dtype)), 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_into_places_that_were_just_overwritten(
    assert_close_like_cpu: Check, dtype: torch.dtype
) -> None:
    """Sums in half precision end in other memory: what was written before must not go there as well."""

    def write(x: torch.Tensor, v: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros((), dtype=x.dtype, device=x.device).expand(v.shape)
        return x.index_put((rows,), zeros).index_put((rows,), v, accumulate=True)

    x, v = _small(5, 7, dtype=dtype), _small(4, 7, dtype=dtype, seed=1)
    assert_close_like_cpu(write, x, v, torch.tensor([0, 2, -1, 2]), eager=False)


def test_gradients(assert_close_like_cpu: Check) -> None:
    x, v = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)

    def write(x: torch.Tensor, v: torch.Tensor, places: torch.Tensor) -> Any:
        return (
            x.scatter_reduce(0, places, v, "mean"),
            x.scatter_reduce(0, places, v, "amax"),
            x.gather(0, places),
            x[places[:, 0]] * 2,
        )

    assert_close_like_cpu(write, x, v, _places(5, 7, limit=5), eager=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_deterministic_mode(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def write(x: torch.Tensor, v: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> Any:
        return (
            x.index_put((rows,), v, accumulate=True),
            x.index_put((rows,), v),
            x.scatter(0, places, v),
            x.index_add(0, rows.abs(), v),
            x.scatter_reduce(0, places, v, "prod"),
            x.scatter_reduce(0, places, v, "mean", include_self=False),
        )

    x, v = _small(5, 7, dtype=dtype), _small(5, 7, dtype=dtype, seed=1)
    rows = torch.tensor([0, 2, -1, 2, 0])
    torch.use_deterministic_algorithms(True)
    try:
        assert_close_like_cpu(write, x, v, rows, _places(5, 7, limit=5), eager=False)
    finally:
        torch.use_deterministic_algorithms(False)


def test_deterministic_sums_repeat_bit_for_bit(vk: torch.device) -> None:
    places = _places(20000, limit=10).to(vk)
    values = torch.randn(20000, generator=torch.Generator().manual_seed(0)).to(vk)
    torch.use_deterministic_algorithms(True)
    try:
        results = [torch.zeros(10, device=vk).index_add(0, places, values).cpu() for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    expected = torch.zeros(10).index_add(0, places.cpu(), values.cpu())
    torch.testing.assert_close(results[0], expected, rtol=1e-4, atol=1e-3)


def test_an_index_out_of_range_is_reported(vk: torch.device) -> None:
    from torchvk_compile.errors import DeviceAssertError

    for operation in (
        lambda x, i: x.scatter(0, i, 1.0),
        lambda x, i: x.index_add(0, i, x[:1]),
        lambda x, i: x.index_put((i,), x[0]),
    ):
        with pytest.raises(DeviceAssertError, match="out of range"):
            operation(torch.randn(4, device=vk), torch.tensor([4], device=vk))
            torch.vk.synchronize()  # type: ignore[attr-defined]
