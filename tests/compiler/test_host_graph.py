"""Graphs that compute on both sides."""

from __future__ import annotations

from collections.abc import Callable

import torch

Check = Callable[..., None]


def test_a_round_trip_through_the_host(assert_close_like_cpu: Check) -> None:
    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        return (doubled.cpu().sin() + 1).to(x.device) * doubled

    assert_close_like_cpu(there_and_back, torch.linspace(-1, 1, 7), eager=False)


def test_gradients_of_a_graph_with_host_work(assert_close_like_cpu: Check) -> None:
    def mixed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor(2.0) * 3
        y = (x @ w) * scale
        return (y.cpu().sin() + 1).to(x.device).sum() * y.sum()

    x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
    w = torch.linspace(-1, 2, 16).reshape(4, 4).requires_grad_()
    assert_close_like_cpu(mixed, x, w, eager=False, rtol=1e-4, atol=1e-4)
