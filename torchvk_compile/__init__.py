"""TorchVK: train and run PyTorch models on any GPU with a Vulkan driver.

In: ``import torchvk_compile``, or nothing at all: torch finds the device and the compiler by
itself.
Out: the public names below, the device ``"vk"``, ``torch.compile(model, backend="torchvk")``.
Forbidden: importing the compiler or opening a device here; ``import torch`` pays for every line.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# torch loads torchvk_compile.device while it is imported, so it has to come first.
import torch  # noqa: F401

from torchvk_compile import config, errors

# Bound here, eagerly: the submodule of the same name must not take its place later.
from torchvk_compile.audit import audit
from torchvk_compile.device import register as _register

__all__ = ["audit", "config", "errors", "inspect", "profile"]

_register()

# Tools for people: a room is imported when somebody asks for it.
_LAZY = {
    "inspect": "torchvk_compile.inspection.session",
    "profile": "torchvk_compile.profiling.session",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


if TYPE_CHECKING:
    from torchvk_compile.inspection.session import inspect
    from torchvk_compile.profiling.session import profile
