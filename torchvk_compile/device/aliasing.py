"""Calls that write a tensor sharing memory with another argument.

In: such a call. Out: torch's error for it, or the same call, safe to run as one kernel that reads and
writes in any order. Forbidden: copying where nothing overlaps.

An argument that is the very view being written (``x.add_(x)``, ``torch.add(x, y, out=x)``) becomes
one input of the graph, so the compiler sees the dependence. One that overlaps it in part is refused,
as on the CPU (ATen's MemoryOverlap.cpp): what the result should be would depend on the order of the
elements. Where ATen does not find out (tensors with gaps) the argument is cloned first.
"""

from __future__ import annotations

from typing import Any

import torch

from torchvk_compile.device import tensors
from torchvk_compile.device.operators import OperatorInfo

_NO_OVERLAP = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        "gather",
        "index_add_",
        "index_copy_",
        "index_put_",
        "index_reduce_",
        "index_select",
        "masked_scatter_",
        "masked_select",
        "put_",
        "scatter_",
        "scatter_add_",
        "scatter_reduce_",
        "take",
    )
)
"""Operators that may not even read the very view they write."""

_PARTIAL = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)


def refuse_overlap(op: torch._ops.OpOverload, written: torch.Tensor, read: torch.Tensor) -> None:
    """Raise torch's error if `op` may not write the one while it reads the other.

    Raises:
        RuntimeError: they overlap in part, or wholly and `op` addresses elements by index.
    """
    if not _overlap(read, written):
        same = _view(read) == _view(written) and read.numel() > 0
        if same and op.overloadpacket in _NO_OVERLAP:
            raise RuntimeError(_PARTIAL)
        return
    if tensors.dense_elements(read) is None or tensors.dense_elements(written) is None:
        return
    # Another shape over the same bytes in the same order (x and x.view(…)) reads what it writes.
    if _range(read) == _range(written) and read.is_contiguous() and written.is_contiguous():
        return
    raise RuntimeError(_PARTIAL)


def separate(
    op: torch._ops.OpOverload, info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The call with overlapping read-only arguments cloned, or None if none has to be.

    Raises:
        RuntimeError: an argument overlaps what is written in a way that torch refuses.
    """
    written = list(info.written_tensors(args, kwargs))
    changed = False

    def safe(value: Any) -> Any:
        nonlocal changed
        if isinstance(value, (list, tuple)):
            return [safe(item) for item in value]
        if isinstance(value, torch.Tensor):
            for target in written:
                refuse_overlap(op, target, value)
            if any(_overlap(value, target) for target in written):
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
