"""What Dynamo and Inductor ask about the vk device.

In: device indices. Out: properties as Inductor's heuristics read them. Forbidden: opening the device for a question
that its profile answers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

_ASSUMED_COMPUTE_UNITS = 32
"""Used where the driver does not tell (software rasterisers): enough to split large reductions."""


@dataclasses.dataclass(frozen=True)
class InductorDeviceProperties:
    """The properties Inductor's heuristics read, in its own terms.

    Attributes:
        multi_processor_count: compute units.
        warp_size: invocations per subgroup.
        max_threads_per_block: invocations per workgroup.
    """

    name: str
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    total_memory: int


class VulkanInterface(DeviceInterface):
    """Dynamo's view of `torch.vk`."""

    class device:
        def __new__(cls, device: Any) -> Any:
            return torch.vk.device(device)  # type: ignore[attr-defined]

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            torch.vk.set_device(device)  # type: ignore[attr-defined]

        @staticmethod
        def current_device() -> int:
            return torch.vk.current_device()  # type: ignore[attr-defined]

        @staticmethod
        def get_device_properties(device: Any = None) -> InductorDeviceProperties:
            return VulkanInterface.get_device_properties(device)

    @staticmethod
    def current_device() -> int:
        return torch.vk.current_device()  # type: ignore[attr-defined]

    @staticmethod
    def set_device(device: Any) -> None:
        torch.vk.set_device(device)  # type: ignore[attr-defined]

    @staticmethod
    def device_count() -> int:
        return torch.vk.device_count()  # type: ignore[attr-defined]

    @staticmethod
    def is_available() -> bool:
        return torch.vk.is_available()  # type: ignore[attr-defined]

    @staticmethod
    def synchronize(device: Any = None) -> None:
        torch.vk.synchronize(device)  # type: ignore[attr-defined]

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return 0

    @classmethod
    def get_device_properties(cls, device: Any = None) -> InductorDeviceProperties:  # type: ignore[override]
        from torchvk_compile.device import profile

        found = profile(_index(device))
        return InductorDeviceProperties(
            name=found.name,
            multi_processor_count=found.compute_units or _ASSUMED_COMPUTE_UNITS,
            warp_size=found.subgroup_size,
            max_threads_per_block=found.max_workgroup_invocations,
            total_memory=max((heap["size"] for heap in found.heaps), default=0),
        )

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return "vulkan"

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:
        return False

    @staticmethod
    def raise_if_triton_unavailable(device: Any = None) -> None:
        raise RuntimeError("Triton kernels cannot run on a vk device")


def _index(device: Any) -> int:
    if device is None:
        return torch.vk.current_device()  # type: ignore[attr-defined]
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return torch.vk.current_device() if index is None else index  # type: ignore[attr-defined]
