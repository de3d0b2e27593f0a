"""Copies of a sample's values on a device, laid out as they were.

In: nested values with CPU tensors. Out: the same structure with tensors elsewhere. Forbidden:
changing the originals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def place(value: Any, device: torch.device) -> Any:
    """Copy `value` to `device`.

    Strides, offsets, and memory shared between the tensors in `value` stay as they are; arguments
    that name the CPU as a device name `device` in the copy.
    """
    return _Placement(device).copy(value)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested sequences and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def map_tensors(value: Any, function: Any) -> Any:
    """`value` with `function` applied to every tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, function) for item in value)
    return value


class _Placement:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self.copies: dict[int, torch.Tensor] = {}

    def copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.copies:
                self.copies[id(value)] = self._copy_tensor(value)
            return self.copies[id(value)]
        if isinstance(value, torch.device):
            return self.device if value.type == "cpu" else value
        if isinstance(value, str):
            return str(self.device) if value == "cpu" else value
        if isinstance(value, dict):
            return {key: self.copy(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.copy(item) for item in value))
        # torch.Size and slices are no containers of tensors.
        if type(value) in (list, tuple):
            return type(value)(self.copy(item) for item in value)
        if isinstance(value, slice):
            return slice(self.copy(value.start), self.copy(value.stop), self.copy(value.step))
        return value

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.detach()
        if source.layout != torch.strided or source.is_conj() or source.is_neg():
            copied = source.clone().to(self.device)
        else:
            base = self._storage(source)
            copied = base.as_strided(source.shape, source.stride(), source.storage_offset())
        return copied.detach().requires_grad_(tensor.requires_grad)

    def _storage(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        # Empty storages all have address 0 and share nothing.
        key = (storage.data_ptr() or id(tensor), tensor.dtype)
        if key not in self.storages:
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            self.storages[key] = flat.clone().to(self.device)
        return self.storages[key]
