"""Distances between rows: cdist and pdist, forward and backward.

In: ATen distances of vk tensors. Out: reductions over differences, which are never kept in memory.
Forbidden: products of matrices in their place, which lose the small distances.
"""

from __future__ import annotations

import math

import torch

from torchvk_compile.lowering.decomposed import route_decomposition

_aten = torch.ops.aten


def register_distances() -> None:
    """Route the distances of vk tensors here."""
    route_decomposition(_aten._cdist_forward.default, _cdist)
    route_decomposition(_aten._cdist_backward.default, _cdist_gradient)
    route_decomposition(_aten._pdist_forward.default, _pdist)
    route_decomposition(_aten._pdist_backward.default, _pdist_gradient)


def _cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:
    """(…, P, M) and (…, R, M) → (…, P, R)."""
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _cdist_gradient(
    grad: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, p: float, cdist: torch.Tensor
) -> torch.Tensor:
    """Gradient of `x1`, with the batch of `grad`: autograd undoes the broadcast."""
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _slope(difference, grad.unsqueeze(-1), cdist.unsqueeze(-1), p).sum(-2)


def _pdist(x: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    """(N, M) → (N * (N - 1) / 2), the pairs of the upper triangle row by row."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind()
    return _norm(_aten._unsafe_index(x, [first]) - _aten._unsafe_index(x, [second]), p)


def _pdist_gradient(
    grad: torch.Tensor, x: torch.Tensor, p: float, pdist: torch.Tensor
) -> torch.Tensor:
    count = x.shape[0]
    if count < 2 or x.shape[1] == 0:
        return torch.zeros_like(x)
    number = torch.arange(count, device=x.device)
    low = torch.minimum(number.unsqueeze(1), number)
    high = torch.maximum(number.unsqueeze(1), number)
    # Where the pair (low, high) stands among the pairs; a row has no pair with itself, and no difference either.
    pair = low * count - low * (low + 1) // 2 + high - low - 1
    pair = torch.where(low < high, pair, 0)
    difference = x.unsqueeze(1) - x.unsqueeze(0)
    own = (low < high).unsqueeze(-1)
    upper, distance = (_aten._unsafe_index(v, [pair]).unsqueeze(-1) for v in (grad, pdist))
    return torch.where(own, _slope(difference, upper, distance, p), 0.0).sum(1)


def _norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    if difference.shape[-1] == 0:
        return difference.new_zeros(difference.shape[:-1])
    size = difference.abs()
    if p == 0:
        return (difference != 0).sum(-1).to(difference.dtype)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    if p == math.inf:
        return size.amax(-1)
    return (size**p).sum(-1) ** (1 / p)


def _slope(
    difference: torch.Tensor, grad: torch.Tensor, distance: torch.Tensor, p: float
) -> torch.Tensor:
    """Gradient of the first row of a pair, 0 where ATen says so (aten/src/ATen/native/cpu/DistanceOpsKernel.cpp)."""
    sign = difference.sign()
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return grad * sign
    if p == math.inf:
        return torch.where(difference.abs() == distance, grad * sign, 0.0)
    if p == 2:
        return torch.where(distance == 0, 0.0, grad * difference / distance)
    if p < 2:
        slope = sign * difference.abs() ** (p - 1) * grad / distance ** (p - 1)
        flat = (distance == 0) | (difference == 0) if p < 1 else distance == 0
        return torch.where(flat, 0.0, slope)
    slope = difference * difference.abs() ** (p - 2) * grad / distance ** (p - 1)
    return torch.where(distance == 0, 0.0, slope)
