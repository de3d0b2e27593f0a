"""Naming a vk device: by nothing, index, string or torch.device; and choosing the current one.

In: what users pass as ``device=``. Out: an index.
Forbidden: opening a device.
"""

from __future__ import annotations

from types import TracebackType
from typing import TypeAlias

import torch

from torchvk_compile.device import physical

Device: TypeAlias = torch.device | int | str | None
"""Everything ``torch.vk`` accepts as a device; None is the current one."""


def index_of(device: Device = None, optional: bool = True) -> int:
    """Index of a vk device.

    Args:
        device: nothing, an index, ``"vk"``, ``"vk:1"`` or a torch.device.
        optional: whether a missing index may mean the current device.

    Raises:
        ValueError: another kind of device, or no index where one is needed.
    """
    if isinstance(device, int):
        return device
    if device is not None:
        named = torch.device(device)
        if named.type != "vk":
            raise ValueError(f"expected a vk device, not {named}")
        if named.index is not None:
            return int(named.index)
    if not optional:
        raise ValueError(f"expected a vk device with an index, not {device}")
    return physical.current_device()


def set_device(device: Device) -> None:
    """Make a device the one that ``"vk"`` means in this thread. Negative indices do nothing."""
    index = index_of(device)
    if index >= 0:
        physical.set_current_device(index)


class device:
    """Context manager: `set_device` inside the block, the previous device afterwards."""

    def __init__(self, device: Device) -> None:
        self.idx = index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = physical.current_device()
        set_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        physical.set_current_device(self.prev_idx)


class device_of(device):
    """Context manager: the device of a tensor; nothing changes for tensors elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.get_device() if tensor.device.type == "vk" else -1)
