"""Telling torch that the device ``vk`` exists. Runs inside ``import torch``, so it must be quick.

In: the entry point ``torch.backends``, or ``import torchvk_compile``. Out: a registered device.
Forbidden: opening Vulkan, importing the compiler; both wait for the first tensor on ``vk``.

Python can give torch hooks and a device guard for PrivateUse1, but most of their functions are fixed
in torch's C++ (torch/csrc/acc/Module.cpp): one device, index 0, no allocator, events or generators.
Hence, whatever this package does:

- `torch.accelerator.synchronize` and its memory functions raise; those of ``torch.vk`` work;
- ``.to("vk")`` means ``vk:0`` and gradients are computed on ``vk:0`` only: TORCHVK_DEVICE says which
  card that is;
- ``torch.Generator(device="vk")`` does not exist; ``torch.UntypedStorage(n, device="vk")`` crashes.
"""

from __future__ import annotations

import torch
from torch._C import _acc
from torch.utils import backend_registration

from torchvk_compile.device import physical

DEVICE = "vk"

_registered = False


class _Hooks(_acc.PrivateUse1Hooks):
    """What torch's C++ asks about the device as a whole."""

    def is_built(self) -> bool:
        return True

    def is_available(self) -> bool:
        return physical.device_count() > 0

    def has_primary_context(self, device_index: int) -> bool:
        return device_index in physical.opened_indices()


class _DeviceGuard(_acc.DeviceGuard):
    def type_(self) -> object:
        return torch._C._autograd.DeviceType.PrivateUse1


def register() -> None:
    """Make ``vk`` a torch device. Calling it again does nothing.

    Raises:
        RuntimeError: another package has already taken torch's one slot for such a device.
    """
    global _registered
    if _registered:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", DEVICE):
        raise RuntimeError(
            f"torch has one slot for an out-of-tree device and it holds {taken!r}. Uninstall that "
            "package or torchvk-compile, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import just one"
        )
    _registered = True
    from torchvk_compile.device import kernels, module, serialization

    backend_registration._setup_privateuseone_for_python_backend(
        DEVICE, backend_module=module.backend_module(), hook=_Hooks(), device_guard=_DeviceGuard()
    )
    serialization.register()
    kernels.register_entry_kernels()
    physical.before_first_open(kernels.register_all_kernels)
