"""Reductions of consecutive rows, and losses whose gradients come from them: segment_reduce, margin losses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Check = Callable[..., None]


def _tensor(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(assert_close_like_cpu: Check, reduce: str) -> None:
    def reduced(x: torch.Tensor, lengths: torch.Tensor, offsets: torch.Tensor) -> object:
        return (
            torch.segment_reduce(x, reduce, lengths=lengths),
            torch.segment_reduce(x, reduce, offsets=offsets, initial=2.0),
        )

    x = _tensor(8, 3)
    x[1], x[2, 0], x[6] = 0.0, 0.0, x[7]
    lengths, offsets = torch.tensor([3, 0, 4, 1]), torch.tensor([0, 3, 3, 8])
    assert_close_like_cpu(reduced, x.requires_grad_(), lengths, offsets, eager=reduce == "max")


def test_segments_of_a_batch(assert_close_like_cpu: Check) -> None:
    def reduced(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, "mean", lengths=lengths, axis=1)

    lengths = torch.tensor([[1, 5], [4, 2]])
    assert_close_like_cpu(reduced, _tensor(2, 6, 3).requires_grad_(), lengths)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("p", [1, 2])
def test_margins_of_one_class(assert_close_like_cpu: Check, reduction: str, p: int) -> None:
    def loss(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> object:
        return (
            F.multi_margin_loss(x, target, p, 0.7, weight, reduction=reduction),
            F.multi_margin_loss(x[:1], target[:1], p, reduction=reduction),
        )

    target = torch.tensor([1, 0, 4])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    assert_close_like_cpu(
        loss, _tensor(3, 5).requires_grad_(), target, weight, eager=reduction == "mean"
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_margins_of_several_classes(assert_close_like_cpu: Check, reduction: str) -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.multilabel_margin_loss(x, target, reduction=reduction)

    target = torch.tensor([[3, 0, -1, 1, 2], [1, 1, 4, -1, -1], [-1, 0, 0, 0, 0]])
    assert_close_like_cpu(loss, _tensor(3, 5).requires_grad_(), target, eager=reduction == "mean")
