"""Embeddings and bags of them: padding, frequencies, norms, per-sample weights, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Check = Callable[..., None]


@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}],
    ids=["plain", "padding", "frequency"],
)
def test_embedding(assert_close_like_cpu: Check, options: dict[str, Any]) -> None:
    weight = torch.randn(10, 4, requires_grad=True)
    indices = torch.tensor([[1, 2, 3], [1, 1, 9]])
    assert_close_like_cpu(lambda w, i: F.embedding(i, w, **options) * 2, weight, indices)


def test_rows_are_limited_in_place(assert_close_like_cpu: Check) -> None:
    def limited(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return F.embedding(i, w, max_norm=1.0) + F.embedding(i, w, max_norm=0.5, norm_type=1.0)

    assert_close_like_cpu(limited, torch.randn(10, 4), torch.tensor([[1, 2, 1], [3, 9, 2]]))


def _bags(mode: str, last: bool = False, **options: Any) -> Callable[..., torch.Tensor]:
    def embed(
        weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        return F.embedding_bag(
            indices,
            weight,
            offsets,
            mode=mode,
            per_sample_weights=weights[0] if weights else None,
            include_last_offset=last,
            **options,
        )

    return embed


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(assert_close_like_cpu: Check, mode: str) -> None:
    weight = torch.randn(10, 6, requires_grad=True)
    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 1])
    offsets = torch.tensor([0, 4, 4, 6, 9])
    assert_close_like_cpu(_bags(mode), weight, indices, offsets[:-1], eager=False)
    padded = _bags(mode, last=True, padding_idx=4)
    assert_close_like_cpu(padded, weight, indices, offsets, eager=mode == "max")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_weighted_bags(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    weight = torch.randn(10, 6).to(dtype).requires_grad_()
    factors = torch.rand(9).to(dtype).requires_grad_()
    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 1])
    offsets = torch.tensor([0, 4, 4, 6], dtype=torch.int64)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert_close_like_cpu(
        _bags("sum"), weight, indices, offsets, factors, eager=False, rtol=tolerance, atol=tolerance
    )


def test_frequencies_in_bags_are_those_of_the_whole_batch(vk: torch.device) -> None:
    """ATen's CPU kernel divides by the count of another index (EmbeddingBag.cpp), so it is no reference here."""
    weight = torch.zeros(4, 1, device=vk, requires_grad=True)
    indices = torch.tensor([1, 1, 3, 1], device=vk)
    bags = torch.compile(_bags("sum", scale_grad_by_freq=True), backend="torchvk")
    bags(weight, indices, torch.tensor([0, 2], device=vk)).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad.flatten().cpu(), torch.tensor([0.0, 1.0, 0.0, 1.0]))


def test_an_index_outside_of_the_table_is_reported(vk: torch.device) -> None:
    from torchvk_compile.errors import DeviceAssertError

    weight, offsets = torch.randn(4, 3, device=vk), torch.tensor([0], device=vk)
    with pytest.raises(DeviceAssertError, match="out of range"):
        F.embedding_bag(torch.tensor([1, 4], device=vk), weight, offsets, mode="sum").cpu()
