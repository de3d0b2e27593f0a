"""Registering the kernels of this room with torch's dispatcher.

In: the KERNELS tables of this room. Out: entries for the dispatch key PrivateUse1.
Forbidden: kernels themselves.

A process that only imports torch pays for the few registrations by which a first vk tensor can come
to be; the other five hundred follow when the device opens.
"""

from __future__ import annotations

import torch

from torchvk_compile.device import tensors

_KEY = "PrivateUse1"

_library: torch.library.Library | None = None
_fallbacks: torch.library.Library | None = None


def register_entry_kernels() -> None:
    """Register what can make the first tensor on the device, and what must precede it."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    for name, function in tensors.KERNELS.items():
        _library.impl(name, function, _KEY)


def register_all_kernels() -> None:
    """Register everything else. Called once, before the first device opens."""
