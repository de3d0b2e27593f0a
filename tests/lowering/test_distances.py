"""Distances between rows for every kind of norm, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

Check = Callable[..., None]


def _rows(*shape: int, seed: int) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    x[..., 1, :] = 0.5
    return x.requires_grad_()


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_cdist(assert_close_like_cpu: Check, p: float) -> None:
    def distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")

    # Rows that are equal have distance 0, where some norms have no gradient.
    x, y = _rows(2, 4, 3, seed=0), _rows(1, 5, 3, seed=1)
    assert_close_like_cpu(distances, x, y, eager=p == 2, rtol=1e-5, atol=1e-6)


def test_cdist_of_nothing(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(torch.cdist, torch.ones(3, 0), torch.ones(2, 0))
    assert_close_like_cpu(torch.cdist, torch.ones(0, 2), torch.ones(2, 2), eager=False)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_pdist(assert_close_like_cpu: Check, p: float) -> None:
    def distances(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pdist(x, p)

    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert_close_like_cpu(distances, x, eager=p == 2, rtol=1e-5, atol=1e-6)
