"""Which Vulkan device stands behind ``vk:0``, ``vk:1``, …, and opening it on first use.

In: the runtime's list of physical devices, ``config.device`` (TORCHVK_DEVICE). Out: runtime
devices.
Forbidden: importing torch tensors' machinery; opening a device before somebody needs it.

``vk:0`` is the best usable device: the runtime lists discrete GPUs first and software rasterisers
last. ``TORCHVK_DEVICE`` narrows the list to one device, which then is ``vk:0``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchvk_compile import cache, config
from torchvk_compile.errors import VulkanError
from torchvk_compile.log import logger

if TYPE_CHECKING:
    from torchvk_compile._runtime import Device, DeviceProfile

_lock = threading.RLock()
_profiles: list[DeviceProfile] | None = None
_opened: dict[int, Device] = {}
_before_first_open: list[Callable[[], None]] = []
_current = threading.local()
_opened_by = 0


def profiles() -> list[DeviceProfile]:
    """Profiles of the usable devices in torch's order, ``vk:0`` first; empty if there is none.

    Raises:
        VulkanError: no Vulkan loader or driver, or TORCHVK_DEVICE names no usable device.
    """
    global _profiles
    if _profiles is None:
        with _lock:
            if _profiles is None:
                _profiles = choose(_physical_devices(), config.device)
    return _profiles


def device_count() -> int:
    """Number of usable devices. 0, without an exception, where Vulkan is missing."""
    try:
        return len(profiles())
    except (VulkanError, ImportError):
        return 0


def profile(index: int = 0) -> DeviceProfile:
    """Profile of ``vk:<index>``; does not open the device. Raises VulkanError if there is none."""
    usable = profiles()
    if not usable:
        raise VulkanError(no_device(_physical_devices()))
    if not 0 <= index < len(usable):
        names = ", ".join(f"vk:{i} {p.name}" for i, p in enumerate(usable))
        raise VulkanError(f"there is no device vk:{index}; this machine has {names}")
    return usable[index]


def runtime_device(index: int) -> Device:
    """The runtime device of ``vk:<index>``, opened on the first call.

    Raises:
        VulkanError: no such device, or the driver refuses to open it.
    """
    device = _opened.get(index)
    return device if device is not None else _open(index)


def opened_devices() -> list[Device]:
    """The runtime devices this process has opened; opens none."""
    return list(_opened.values())


def opened_indices() -> set[int]:
    """Torch's indices of the devices this process has opened."""
    return set(_opened)


def is_initialized() -> bool:
    """Whether any device has been opened."""
    return bool(_opened)


def is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had opened a device, which it cannot use."""
    return _opened_by not in (0, os.getpid())


def refuse_in_forked_process() -> None:
    """Raise VulkanError in a process that was forked from one that had opened a device."""
    if is_in_bad_fork():
        raise VulkanError(
            "a forked process cannot use the Vulkan devices of its parent. Use the spawn start "
            'method (torch.multiprocessing.set_start_method("spawn")), or use vk tensors in '
            "the parent only: DataLoader workers should yield CPU tensors"
        )


def before_first_open(action: Callable[[], None]) -> None:
    """Have `action` called once, right before the first device opens."""
    _before_first_open.append(action)


def current_device() -> int:
    """Index that ``"vk"`` without an index stands for in this thread."""
    return getattr(_current, "index", 0)


def set_current_device(index: int) -> None:
    """Make ``vk:<index>`` this thread's current device. Raises VulkanError if there is none."""
    if index != 0 or _profiles is not None:
        profile(index)
    _current.index = index


def _physical_devices() -> list[DeviceProfile]:
    try:
        from torchvk_compile import _runtime
    except ImportError as error:
        raise ImportError(
            f"torchvk's runtime cannot be loaded ({error}). Install torchvk-compile, or build it "
            "with `pip install -e .` in a checkout."
        ) from error
    from torchvk_compile.errors import register_with_runtime

    register_with_runtime()
    # The runtime reads this variable when it makes its Vulkan instance, in the next call.
    os.environ["TORCHVK_VALIDATION"] = "1" if config.validation else "0"
    return _runtime.physical_devices()


def _open(index: int) -> Device:
    global _opened_by
    with _lock:
        if index in _opened:
            return _opened[index]
        refuse_in_forked_process()
        chosen = profile(index)
        from torchvk_compile import _runtime

        if not _opened:
            config.warn_about_unknown_variables()
        while _before_first_open:
            _before_first_open.pop()()
        device = _runtime.device(chosen.index, _pipeline_cache_path(chosen), index)
        _opened_by = os.getpid()
        _opened[index] = device
        driver = f"{chosen.driver_name} {chosen.driver_info}"
        logger("runtime").info(
            "opened vk:%d: %s, %s, Vulkan %s", index, chosen.name, driver, chosen.api_version
        )
        return device


def _pipeline_cache_path(chosen: DeviceProfile) -> str | None:
    """Where the driver's compiled pipelines are kept; None without a directory to keep them in."""
    path = cache.directory() / "pipelines" / f"{chosen.device_uuid}-{chosen.driver_uuid}.bin"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # the cache has said so itself
        return None
    return str(path)


def choose(found: list[DeviceProfile], wanted: str | None) -> list[DeviceProfile]:
    """The devices that become ``vk:0``, ``vk:1``, … when `wanted` is the setting ``device``.

    Raises:
        VulkanError: `wanted` names no usable device.
    """
    if wanted is None:
        return [p for p in found if not p.missing and not p.null_hardware]
    if wanted.isdigit():
        matches = [p for p in found if p.index == int(wanted)]
    else:
        matches = [p for p in found if wanted.lower() in p.name.lower()]
    if not matches:
        raise VulkanError(f"TORCHVK_DEVICE={wanted!r} matches no Vulkan device. {_listing(found)}")
    # Null hardware is taken only on request: it compiles kernels, but runs nothing.
    for match in sorted(matches, key=lambda p: p.null_hardware):
        if not match.missing:
            return [match]
    raise VulkanError(f"TORCHVK_DEVICE={wanted!r} selects {_verdict(matches[0])}")


def no_device(found: list[DeviceProfile]) -> str:
    """Why there is no usable device among those that Vulkan lists, and what to do about it."""
    if not found:
        return (
            "no Vulkan device was found. Install your GPU's driver; without a GPU, Mesa's software "
            "device works too (Debian: apt-get install mesa-vulkan-drivers). "
            "`torchvk doctor` shows what Vulkan sees"
        )
    return f"no Vulkan device is usable. {_listing(found)}"


def _listing(found: list[DeviceProfile]) -> str:
    if not found:
        return "Vulkan lists no device at all"
    return "Vulkan lists: " + "; ".join(f"{p.index}: {_verdict(p)}" for p in found)


def _verdict(found: DeviceProfile) -> str:
    if found.null_hardware:
        return f"{found.name}, which compiles shaders but runs nothing"
    if found.missing:
        return f"{found.name}, which lacks {', '.join(found.missing)}"
    return found.name
