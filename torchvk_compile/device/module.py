"""The module ``torch.vk``: what torch and users call by name on the device.

In: calls like torch.cuda's. Out: answers from the rooms of this package.
Forbidden: logic of its own; importing the compiler before Inductor asks for it.
"""

from __future__ import annotations

import difflib
import types
from typing import Any

import torch

from torchvk_compile.device import memory, physical, random, selection, streams
from torchvk_compile.device.selection import Device, index_of


def is_available() -> bool:
    """Whether there is a usable Vulkan device."""
    return physical.device_count() > 0


def get_device_name(device: Device = None) -> str:
    """Name of the physical device."""
    return physical.profile(index_of(device)).name


def get_device_properties(device: Device = None) -> Any:
    """The device's `DeviceProfile`: limits, features, memory heaps, driver."""
    return physical.profile(index_of(device))


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Vulkan version of the device: (major, minor)."""
    major, minor, *_ = physical.profile(index_of(device)).api_version.split(".")
    return int(major), int(minor)


def get_arch_list() -> list[str]:
    """Architectures that kernels are built for ahead of time: none, they are built on demand."""
    return []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors work; without native support arithmetic runs in float32."""
    return including_emulation or bool(physical.profile(physical.current_device()).bfloat16)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes torch.autocast("vk", dtype=...) takes."""
    return [torch.float16, torch.bfloat16]


def init() -> None:
    """Open the current device now rather than at its first tensor."""
    physical.runtime_device(physical.current_device())


def current_device() -> int:
    """Index that ``"vk"`` without an index stands for in this thread."""
    return physical.current_device()


def device_count() -> int:
    """Number of usable devices."""
    return physical.device_count()


def is_initialized() -> bool:
    """Whether any device has been opened."""
    return physical.is_initialized()


def exchange_device(device: int) -> int:
    """Set the current device and return the previous one; a negative index changes nothing."""
    previous = physical.current_device()
    selection.set_device(device)
    return previous


class _BackendModule(types.ModuleType):
    """``torch.vk``, which also hears when Inductor sets up its backends."""

    @property
    def _initialized(self) -> bool:
        # Activation checkpointing keeps the device's random state only if this is true.
        return physical.is_initialized()

    def __getattr__(self, name: str) -> Any:
        if name == "Scheduling" and physical.is_initialized():
            # Inductor looks for this class when it sets up its backends; registering ours now lets a
            # plain torch.compile(model) compile for the device.
            from torchvk_compile.backend import register_with_inductor

            register_with_inductor()
        nearest = difflib.get_close_matches(name, vars(self), n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise AttributeError(f"module 'torch.vk' has no attribute {name!r}{hint}")


def backend_module() -> types.ModuleType:
    """The module object to register as ``torch.vk``."""
    module = _BackendModule("torch.vk", __doc__)
    functions: tuple[Any, ...] = (
        is_available,
        device_count,
        current_device,
        exchange_device,
        get_device_name,
        get_device_properties,
        get_device_capability,
        get_arch_list,
        is_bf16_supported,
        get_amp_supported_dtype,
        init,
        is_initialized,
        selection.set_device,
        selection.device,
        selection.device_of,
        *memory.FUNCTIONS,
        random.manual_seed,
        random.manual_seed_all,
        random.seed,
        random.seed_all,
        random.initial_seed,
        random.get_rng_state,
        random.set_rng_state,
        random.get_rng_state_all,
        random.set_rng_state_all,
        streams.Stream,
        streams.Event,
        streams.synchronize,
        streams.current_stream,
        streams.set_stream,
        streams.stream,
    )
    for function in functions:
        setattr(module, function.__name__, function)
    vars(module).update(
        _is_in_bad_fork=physical.is_in_bad_fork,
        default_stream=streams.current_stream,
        maybe_exchange_device=exchange_device,
        _exchange_device=exchange_device,
        _maybe_exchange_device=exchange_device,
        _lazy_init=init,
        __all__=[name for name in vars(module) if not name.startswith("_")],
    )
    return module
