"""The torch device ``vk``: tensors, copies, views, memory, random numbers, eager operators.

In: torch's calls for the PrivateUse1 dispatch key. Out: runtime buffers and one-op graphs.
Forbidden: importing Inductor or Dynamo at import; replacing torch functions; computing on the CPU.
"""

from __future__ import annotations

from torchvk_compile.device.physical import opened_devices, profile, runtime_device
from torchvk_compile.device.registration import register
from torchvk_compile.device.tensors import tensor_from_capsule

__all__ = ["opened_devices", "profile", "register", "runtime_device", "tensor_from_capsule"]
