"""Searches, histograms, distinct elements, sizes that depend on the data, random orders and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8]
)
def test_searches(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def search(
        edges: torch.Tensor,
        x: torch.Tensor,
        rows: torch.Tensor,
        mixed: torch.Tensor,
        order: torch.Tensor,
    ) -> Any:
        return [
            result
            for right in (True, False)
            for result in (
                torch.bucketize(x, edges, right=right),
                torch.bucketize(x, edges[::2], right=right, out_int32=True),
                torch.bucketize(x, edges[1:4], right=right),
                torch.searchsorted(rows, mixed[..., :5], right=right),
                torch.searchsorted(rows[..., 3:], mixed[..., :5], right=right),
                torch.searchsorted(mixed, rows[..., :3], right=right, sorter=order),
                torch.searchsorted(edges[::2], 3.5, right=right, out_int32=True),
                torch.bucketize(3, edges, right=right),
            )
        ]

    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([1, 3, 3, 5, 9]).to(dtype)
    x = torch.tensor([[0, 1, 2, 3], [4, 5, 9, 12]]).to(dtype)
    if dtype.is_floating_point:
        x[0, 0], x[1, 3] = torch.nan, torch.inf
    mixed = torch.randint(0, 50, (2, 3, 33), generator=generator).to(dtype)
    rows = torch.randint(0, 50, (2, 3, 17), generator=generator).to(dtype).sort(-1).values
    order = torch.argsort(mixed.to(torch.float32), dim=-1, stable=True)
    assert_close_like_cpu(search, edges, x, rows, mixed, order, eager=dtype is torch.float32)


def test_histograms(assert_close_like_cpu: Check) -> None:
    def count(x: torch.Tensor, weights: torch.Tensor, edges: torch.Tensor) -> Any:
        return (
            torch.histc(x, 10),
            torch.histc(x, 7, -1, 1),
            torch.histc(x * 0 + 3, 4),
            *torch.histogram(x, 10),
            *torch.histogram(x, 5, range=(-1.0, 1.0), weight=weights, density=True),
            *torch.histogram(x, edges),
        )

    generator = torch.Generator().manual_seed(0)
    x, weights = torch.randn(100, generator=generator), torch.rand(100, generator=generator)
    edges = torch.tensor([-2.0, -0.5, 0.0, 0.3, 2.0])
    assert_close_like_cpu(count, x, weights, edges, compiled=False)
    assert_close_like_cpu(lambda x: torch.histc(x, 10), x.to(torch.bfloat16), eager=False)


def test_histograms_of_points(assert_close_like_cpu: Check) -> None:
    def count(points: torch.Tensor, edges: torch.Tensor) -> Any:
        counted, own = torch.histogramdd(points, [3, 4])
        given, _ = torch.histogramdd(points, [edges, edges * 2], density=True)
        return counted, *own, given

    points = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    assert_close_like_cpu(count, points, torch.tensor([-2.0, -0.5, 0.0, 2.0]), compiled=False)


def test_distinct_elements_and_slices(assert_close_like_cpu: Check) -> None:
    def distinct(x: torch.Tensor, y: torch.Tensor) -> Any:
        everything: dict[str, Any] = {"return_inverse": True, "return_counts": True}
        return (
            *torch.unique(x, **everything),
            torch.unique(x.float()),
            torch.unique(x > 3),
            torch.unique(x[:0]),
            *torch.unique_consecutive(x.sort(1).values, **everything),
            *torch.unique(y, dim=0, **everything),
            *torch.unique(y, dim=1, **everything),
            *torch.unique_consecutive(y, dim=0, **everything),
        )

    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 9, (6, 5), generator=generator)
    y = torch.randint(0, 2, (12, 3, 2), generator=generator)
    assert_close_like_cpu(distinct, x, y, compiled=False)


def _selected(x: torch.Tensor) -> Any:
    return (
        torch.nonzero(x > 0),
        torch.masked_select(x, x > 0.3),
        x[x > 0].cumsum(0),
        torch.bincount((x[0].abs() * 3).to(torch.int64), minlength=4),
        torch.repeat_interleave(x[:2], torch.tensor([2, 1], device=x.device), dim=0),
    )


def test_sizes_that_depend_on_the_data(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(_selected, torch.randn(7, 5, generator=torch.Generator().manual_seed(0)))


def test_sizes_that_depend_on_the_data_inside_one_graph(assert_close_like_cpu: Check) -> None:
    import torch._dynamo.config as dynamo

    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    with dynamo.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        assert_close_like_cpu(
            lambda x: (torch.nonzero(x > 0) + 1, torch.masked_select(x, x > 0).sort().values),
            x,
            eager=False,
        )


def test_random_orders(vk: torch.device) -> None:
    compiled = torch.compile(lambda: torch.randperm(1000, device=vk), backend="torchvk")
    first, second = compiled().cpu(), compiled().cpu()
    eager = torch.randperm(3000, device=vk).cpu()
    assert first.sort().values.equal(torch.arange(1000)) and not first.equal(second)
    assert eager.sort().values.equal(torch.arange(3000))
    assert not eager.equal(torch.arange(3000))


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_random_choices(vk: torch.device, way: str) -> None:
    def draw(weights: torch.Tensor) -> Any:
        return torch.multinomial(weights, 20000, True), torch.multinomial(weights, 3, False)

    function = torch.compile(draw, backend="torchvk") if way == "compiled" else draw
    weights = torch.tensor([[0.0, 1, 3, 0, 6, 0], [1, 1, 1, 1, 0, 0]])
    with_replacement, without = (result.cpu() for result in function(weights.to(vk)))
    for row, own in zip(with_replacement, weights, strict=True):
        shares = torch.bincount(row, minlength=6) / 20000
        torch.testing.assert_close(shares, own / own.sum(), rtol=0, atol=0.02)
    assert set(without[0].tolist()) == {1, 2, 4}
    assert len(set(without[1].tolist())) == 3 and int(without[1].max()) <= 3


def test_impossible_choices_are_reported(vk: torch.device) -> None:
    from torchvk_compile.errors import DeviceAssertError

    for weights in ([0.0, -1.0, 2.0], [0.0, 0.0, 0.0]):
        with pytest.raises(DeviceAssertError):
            torch.multinomial(torch.tensor(weights, device=vk), 1).cpu()
