"""Pinned host memory, and other requests the device has no use for.

In: ``tensor.pin_memory()`` on CPU tensors, `record_stream`. Out: answers that let code go on.
Forbidden: pretending that memory is pinned.

The runtime copies host memory into its own staging buffers at once, so pinned memory would gain
nothing; torch offers Python no way to provide any either. A "pinned" tensor is an ordinary copy.
torch asks its one current accelerator for pinned memory, and that is ``vk`` wherever TorchVK is
installed; so this also answers where torch was built for CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _pin_memory(self: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    return self.clone()


def _record_stream(self: torch.Tensor, s: torch.Stream) -> None:
    """Nothing to do: blocks are reused in stream order, and there is one stream."""


KERNELS: dict[str, Callable[..., Any]] = {"record_stream": _record_stream}
"""ATen kernels of this file."""

HOST_KERNELS: dict[str, Callable[..., Any]] = {"_pin_memory": _pin_memory}
"""ATen kernels of this file for CPU tensors."""
