"""Indices of sorted and selected values, where equal values leave a choice.

In: a call and its results. Out: nothing, or `Mismatch`. Forbidden: accepting an index whose value
is another one.
"""

from __future__ import annotations

from typing import Any

import torch

from .comparison import Mismatch, compare
from .tolerances import NOTHING_MORE, default


def _argument(call: Any, name: str, position: int, default: Any) -> Any:
    if name in call.kwargs:
        return call.kwargs[name]
    return call.args[position] if len(call.args) > position else default


def _at(values: torch.Tensor, indices: torch.Tensor, dim: int) -> torch.Tensor:
    if values.dim() == 0:
        values, indices = values.reshape(1), indices.reshape(1)
    if indices.numel() and not bool(((indices >= 0) & (indices < values.shape[dim])).all()):
        raise Mismatch(f"an index is outside of 0..{values.shape[dim] - 1}")
    return values.gather(dim, indices)


def _require_distinct(indices: torch.Tensor, dim: int) -> None:
    rows = indices.reshape(1) if indices.dim() == 0 else indices
    ordered = rows.sort(dim).values
    if bool((ordered.diff(dim=dim) == 0).any()):
        raise Mismatch("an index appears twice in one row")


def check_sort(call: Any, expected: Any, actual: Any) -> None:
    """``sort``: the values are torch's, each index points to its value, none appears twice."""
    if _argument(call, "stable", 9, False):
        raise Mismatch("a stable sort leaves no choice")
    compare(actual[0], expected[0], NOTHING_MORE)
    dim = _sorted_dim(call)
    ordered = expected[0].reshape(_row_shape(expected[0]))
    compare(_at(call.input, actual[1].cpu(), dim), ordered, NOTHING_MORE)
    _require_distinct(actual[1].cpu(), dim)


def check_topk(call: Any, expected: Any, actual: Any) -> None:
    """``topk``: as a sort; unsorted results may come in any order."""
    dim = _argument(call, "dim", 1, -1)
    ordered = _argument(call, "sorted", 3, True)
    values, indices = actual[0].cpu(), actual[1].cpu()
    theirs = expected[0]
    compare(_at(call.input, indices, dim), values.reshape(_row_shape(values)), NOTHING_MORE)
    _require_distinct(indices, dim)
    if not ordered and values.dim():
        values, theirs = values.sort(dim).values, theirs.sort(dim).values
    compare(values, theirs, NOTHING_MORE)


def check_argsort(call: Any, expected: Any, actual: Any) -> None:
    """``argsort``: the indices name torch's values, in torch's order."""
    if _argument(call, "stable", 9, False):
        raise Mismatch("a stable sort leaves no choice")
    dim = _sorted_dim(call)
    mine = _at(call.input, actual.cpu(), dim)
    compare(mine, _at(call.input, expected, dim), NOTHING_MORE)
    _require_distinct(actual.cpu(), dim)


def check_selected(call: Any, expected: Any, actual: Any) -> None:
    """``kthvalue``, ``median``, ``mode``: torch's value, and an index where it stands."""
    compare(actual[0], expected[0], NOTHING_MORE)
    compare(actual[1].shape, expected[1].shape, NOTHING_MORE)
    position = 1 if call.name == "kthvalue" else 0
    dim = _argument(call, "dim", position, -1)
    keepdim = actual[1].dim() == call.input.dim()
    indices = actual[1].cpu() if keepdim else actual[1].cpu().unsqueeze(dim)
    values = expected[0] if keepdim else expected[0].unsqueeze(dim)
    compare(_at(call.input, indices, dim), values.reshape(_row_shape(values)), NOTHING_MORE)


def check_tied_gradients(call: Any, expected: Any, actual: Any) -> None:
    """Gradients of sorted or selected values: each may go to any of the equal elements of a row."""
    dim = call.kwargs.get("dim", next((arg for arg in call.args if type(arg) is int), -1))
    if call.name == "kthvalue":
        dim = _argument(call, "dim", 1, -1)
    if call.name == "msort":
        dim = 0
    sums = [_sums_of_equal_elements(call.input, parts[0], dim) for parts in (actual, expected)]
    if not torch.allclose(sums[0], sums[1], rtol=default(expected[0].dtype).rtol, atol=1e-5):
        raise Mismatch("a gradient went to another value")


def _sums_of_equal_elements(
    values: torch.Tensor, gradients: torch.Tensor, dim: int
) -> torch.Tensor:
    """For each element, the sum of the gradients of all elements of its row that equal it."""
    values = values.detach().reshape(_row_shape(values)).movedim(dim, -1).double()
    gradients = gradients.detach().cpu().reshape(_row_shape(gradients)).movedim(dim, -1).double()
    rows = [
        torch.zeros(len(row), dtype=torch.float64).index_add_(0, groups, gradient)[groups]
        for row, gradient in zip(_rows(values), _rows(gradients), strict=True)
        for groups in [row.unique(return_inverse=True)[1]]
    ]
    return torch.stack(rows)


def _rows(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, values.shape[-1])


def _sorted_dim(call: Any) -> int:
    return _argument(call, "dim", 0, -1)


def _row_shape(values: torch.Tensor) -> tuple[int, ...]:
    return tuple(values.shape) if values.dim() else (1,)


GRADIENT_CHECKS = dict.fromkeys(
    ("sort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode"), check_tied_gradients
)

CHECKS = {
    "sort": check_sort,
    "topk": check_topk,
    "argsort": check_argsort,
    "kthvalue": check_selected,
    "median": check_selected,
    "nanmedian": check_selected,
    "mode": check_selected,
}
