"""Saving, loading, copying and pickling tensors on ``vk``.

In: torch.save/load, copy.deepcopy, pickles sent to other processes. Out: the same bytes, elsewhere.
Forbidden: sending device addresses anywhere; letting torch allocate a vk storage by itself.

torch would make new storages through an allocator for PrivateUse1, which only C++ can provide; in
torch 2.13 ``torch.UntypedStorage(n, device="vk")`` crashes the process for want of one. The
registrations below replace its three uses: loading, deep copies, and pickles between processes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from torchvk_compile.device import physical, tensors

_LOCATION = re.compile(r"vk(?::(\d+))?")
_PRIORITY = 15  # before torch's own entry for PrivateUse1 (23), after the one for the CPU (10)


def register() -> None:
    """Tell torch.serialization, copy and multiprocessing how vk storages travel."""
    torch.serialization.register_package(_PRIORITY, _tag, _deserialize)
    deep_copiers: dict[type, Any] = vars(copy)["_deepcopy_dispatch"]
    _wrap(deep_copiers, torch.UntypedStorage, _deepcopy_storage)
    reducers: dict[type, Any] = vars(ForkingPickler)["_extra_reducers"]
    _wrap(reducers, torch.UntypedStorage, _reduce_storage)


def to_device(storage: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    """A copy of a storage on ``vk:<index>``; its bytes, whatever their dtype."""
    new = _new_storage(storage.nbytes(), index)
    new.copy_(storage, False)
    return new


def _new_storage(nbytes: int, index: int) -> torch.UntypedStorage:
    return tensors.empty((nbytes,), (1,), torch.uint8, index).untyped_storage()


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "vk" else None


def _deserialize(storage: Any, location: str) -> Any:
    match = _LOCATION.fullmatch(location)
    if match is None:
        return None
    index = int(match[1]) if match[1] else physical.current_device()
    if physical.device_count() == 0:
        raise RuntimeError(
            f"the file holds tensors of device {location!r} and there is no usable Vulkan device "
            'here; load it with torch.load(..., map_location="cpu")'
        )
    physical.profile(index)
    return to_device(storage, index)


def _deepcopy_storage(
    storage: torch.UntypedStorage, memo: dict[Any, Any]
) -> torch.UntypedStorage | None:
    if storage.device.type != "vk":
        return None
    seen = memo.setdefault("torch", {})
    if storage._cdata not in seen:
        seen[storage._cdata] = to_device(storage, storage.device.index)
    return seen[storage._cdata]


def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...] | None:
    if storage.device.type != "vk":
        return None
    return _rebuild_storage, (storage.cpu(), storage.device.index)


def _rebuild_storage(host: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    return to_device(host, index)


def _wrap(table: dict[type, Callable[..., Any]], kind: type, first: Callable[..., Any]) -> None:
    """Ask `first` before the table's own function (or the class's method) for `kind`."""
    then = table.get(kind, getattr(kind, "__deepcopy__", None))
    assert then is not None, kind

    def function(storage: Any, *args: Any) -> Any:
        result = first(storage, *args)
        return then(storage, *args) if result is None else result

    table[kind] = function
