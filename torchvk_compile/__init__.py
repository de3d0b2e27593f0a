"""TorchVK: train and run PyTorch models on any GPU with a Vulkan driver.

In: ``import torchvk_compile``, or nothing at all: torch finds the device and the compiler by
itself.
Out: the public names below, the device ``"vk"``, ``torch.compile(model, backend="torchvk")``.
Forbidden: importing the compiler or opening a device here; ``import torch`` pays for every line.
"""

from __future__ import annotations

# torch loads torchvk_compile.device while it is imported, so it has to come first.
import torch  # noqa: F401

from torchvk_compile import config, errors

# Bound here, eagerly: the submodule of the same name must not take its place later.
from torchvk_compile.audit import audit
from torchvk_compile.device import register as _register

__all__ = ["audit", "config", "errors"]

_register()
