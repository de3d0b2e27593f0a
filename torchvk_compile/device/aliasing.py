"""Calls that write a tensor sharing memory with another argument.

In: such a call. Out: the same call, safe to run as one kernel that reads and writes in any order.
Forbidden: copying where nothing overlaps.

An argument that is the very view being written (``x.add_(x)``, ``torch.add(x, y, out=x)``) becomes
one input of the graph, so the compiler sees the dependence. One that merely overlaps it is cloned
first.
"""

from __future__ import annotations

from typing import Any

import torch

from torchvk_compile.device.operators import OperatorInfo


def separate(
    info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The call with overlapping read-only arguments cloned, or None if none has to be."""
    written = list(info.written_tensors(args, kwargs))
    changed = False

    def safe(value: Any) -> Any:
        nonlocal changed
        if isinstance(value, (list, tuple)):
            return [safe(item) for item in value]
        if isinstance(value, torch.Tensor) and any(_overlap(value, w) for w in written):
            changed = True
            return value.clone()
        return value

    names = {name for name, _ in info.written}
    positions = {position for _, position in info.written}
    new_args = tuple(v if i in positions else safe(v) for i, v in enumerate(args))
    new_kwargs = {name: v if name in names else safe(v) for name, v in kwargs.items()}
    return (new_args, new_kwargs) if changed else None


def pattern(found: list[torch.Tensor]) -> tuple[int, ...]:
    """For each tensor the index of the first one that is the same view."""
    views = [_view(tensor) for tensor in found]
    return tuple(views.index(view) for view in views)


def _overlap(read: torch.Tensor, written: torch.Tensor) -> bool:
    if read.untyped_storage()._cdata != written.untyped_storage()._cdata:
        return False
    if _view(read) == _view(written):
        return False
    first, end = _range(read)
    other_first, other_end = _range(written)
    return first < other_end and other_first < end


def _view(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte address of a tensor and the one after its last."""
    first = tensor.data_ptr()
    if tensor.numel() == 0:
        return first, first
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.itemsize
