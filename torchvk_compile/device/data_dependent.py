"""Operators whose result's shape depends on the data: nonzero, masks as indices, repeats, bincount.

In: vk tensors. Out: vk tensors; one number, the result's length, is read back on the way.
Forbidden: computing on the host. (Printing is the exception: see `_masked_select`.)

A length is found with a prefix sum on the device, then the elements are moved by a scatter.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _tensor_str

from torchvk_compile.device import eager, transfer

_aten = torch.ops.aten

_PRINTING = _tensor_str._Formatter.__init__.__code__
_MASKS = (torch.bool, torch.uint8)


def _nonzero(self: torch.Tensor) -> torch.Tensor:
    flat = _nonzero_flat(self)
    columns = []
    for extent in reversed(self.shape):
        columns.append(flat % extent)
        flat = torch.div(flat, extent, rounding_mode="floor")
    if not columns:
        return flat.new_empty((flat.numel(), 0))
    # Coordinates of one dimension lie together, as on the CPU.
    return torch.stack(columns[::-1]).t()


def _nonzero_flat(self: torch.Tensor) -> torch.Tensor:
    """Positions of the nonzero elements in row-major order, as int64."""
    count = self.numel()
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device=self.device)
    flags = (self != 0).reshape(-1)
    ends = flags.cumsum(0)
    length = int(ends[-1].item())
    # Where a flag is off, the element lands in a spare place behind the result.
    places = torch.where(flags, ends - 1, length)
    positions = torch.arange(count, device=self.device)
    result = torch.empty(length + 1, dtype=torch.int64, device=self.device)
    return result.scatter_(0, places, positions)[:length]


def _masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    caller = sys._getframe().f_back  # none where autograd's own thread calls
    if caller is not None and caller.f_code is _PRINTING:
        # torch formats tensors with float64 arithmetic and a synchronisation per element. These
        # values leave the device to be printed anyway, so let them go here.
        return transfer.to_host(self).masked_select(transfer.to_host(mask))
    self, mask = torch.broadcast_tensors(self, mask)
    return self.reshape(-1).index_select(0, _nonzero_flat(mask))


def _index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    indices = _without_masks(self, _on_device(self, indices))
    return eager.run(_aten.index.Tensor, (self, indices), {})


def _index_put(
    op: torch._ops.OpOverload,
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> torch.Tensor:
    indices = _on_device(self, indices)
    if not (values.dim() == 0 and _one_full_mask(self, indices)):
        indices = _without_masks(self, indices)
    return eager.run(op, (self, indices, values, accumulate), {})


def _index_put_impl(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    return _index_put(_aten.index_put_.default, self, indices, values, accumulate)


def _on_device(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    """The indices where the indexed tensor is: those of the CPU may select from a device, as on CUDA."""
    if self.device.type == "cpu":
        return indices
    return [
        index if index is None or index.device.type != "cpu" else index.to(self.device)
        for index in indices
    ]


def _one_full_mask(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> bool:
    return len(indices) == 1 and indices[0] is not None and indices[0].dtype in _MASKS


def _without_masks(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """The indices with every boolean mask replaced by the positions it selects."""
    result: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in _MASKS:
            result.append(index)
            continue
        covered = self.shape[len(result) : len(result) + index.dim()]
        if index.shape != covered:
            raise IndexError(
                f"The shape of the mask {list(index.shape)} at index {len(result)} does not match "
                f"the shape of the indexed tensor {list(self.shape)} at index {len(result)}"
            )
        result.extend(_nonzero(index).unbind(1))
    return result


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.numel() == 0:
        return torch.empty(0, dtype=repeats.dtype, device=repeats.device)
    ends = repeats.cumsum(0)
    length = int(ends[-1].item()) if output_size is None else output_size
    positions = torch.arange(length, device=repeats.device)
    return torch.searchsorted(ends, positions, right=True).to(repeats.dtype)


def _bincount(
    self: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    if self.dim() != 1 or self.dtype.is_floating_point or minlength < 0:
        raise RuntimeError(
            "bincount only supports 1-d non-negative integral inputs and a non-negative minlength"
        )
    length = minlength
    if self.numel():
        low, high = (int(value.item()) for value in torch.aminmax(self))
        if low < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        length = max(length, high + 1)
    if weights is None:
        weights = torch.ones(self.shape, dtype=torch.int64, device=self.device)
    elif weights.dtype not in (torch.float32, torch.float64):
        weights = weights.to(torch.float64)
    counts = torch.zeros(length, dtype=weights.dtype, device=self.device)
    return counts.scatter_add_(0, self.to(torch.int64), weights)


KERNELS: dict[str, Callable[..., Any]] = {
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "index.Tensor": _index,
    "index_put": functools.partial(_index_put, _aten.index_put.default),
    "index_put_": functools.partial(_index_put, _aten.index_put_.default),
    "_index_put_impl_": _index_put_impl,
    "repeat_interleave.Tensor": _repeat_interleave,
    "bincount": _bincount,
}
"""ATen kernels of this file."""
