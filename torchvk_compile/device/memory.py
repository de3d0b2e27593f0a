"""``torch.vk``'s memory functions, named and behaving like those of torch.cuda.

In: an optional device. Out: bytes, or statistics of the runtime's caching allocator.
Forbidden: opening a device just to report that nothing is allocated on it.
"""

from __future__ import annotations

from collections import OrderedDict

from torchvk_compile.device import physical
from torchvk_compile.device.selection import Device, index_of


def memory_stats(device: Device = None) -> dict[str, int]:
    """All statistics, under torch.cuda.memory_stats' names; empty before the first allocation."""
    index = index_of(device)
    if index not in physical.opened_indices():
        return OrderedDict()
    return OrderedDict(sorted(physical.runtime_device(index).memory_stats().items()))


def memory_allocated(device: Device = None) -> int:
    """Bytes that live tensors occupy."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Device = None) -> int:
    """Largest `memory_allocated` since the start or `reset_peak_memory_stats`."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Device = None) -> int:
    """Bytes taken from the driver: tensors, graphs' arenas and cached blocks."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Device = None) -> int:
    """Largest `memory_reserved` since the start or `reset_peak_memory_stats`."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start the peaks anew at the present values."""
    for runtime in _opened(device):
        runtime.reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the counts of everything allocated and freed so far anew at zero."""
    for runtime in _opened(device):
        runtime.reset_accumulated_memory_stats()


def empty_cache() -> None:
    """Give cached blocks back to the driver, on every device."""
    for runtime in physical.opened_devices():
        runtime.empty_cache()


def set_memory_limit(nbytes: int | None, device: Device = None) -> None:
    """Refuse to reserve more than `nbytes` of device memory; None or 0 lifts the limit.

    Allocations beyond it raise torch.OutOfMemoryError, as on a card with that much memory.
    """
    if nbytes is not None and nbytes < 0:
        raise ValueError(f"a memory limit is a number of bytes, not {nbytes}")
    physical.runtime_device(index_of(device)).set_memory_limit(nbytes or 0)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the device's memory, as the driver (or the limit) has it."""
    free, total = physical.runtime_device(index_of(device)).mem_get_info()
    return free, total


def memory_summary(device: Device = None) -> str:
    """The main numbers as text."""
    stats = memory_stats(device)
    rows = [f"vk:{index_of(device)} memory           current         peak"]
    for label, key in (("allocated", "allocated_bytes"), ("reserved", "reserved_bytes")):
        current, peak = (stats.get(f"{key}.all.{kind}", 0) for kind in ("current", "peak"))
        rows.append(f"{label:<12}{current:>16,} B {peak:>10,} B")
    return "\n".join(rows)


def _opened(device: Device) -> list[physical.Device]:
    index = index_of(device)
    return [physical.runtime_device(index)] if index in physical.opened_indices() else []


FUNCTIONS = (
    memory_stats,
    memory_allocated,
    max_memory_allocated,
    memory_reserved,
    max_memory_reserved,
    reset_peak_memory_stats,
    reset_accumulated_memory_stats,
    empty_cache,
    set_memory_limit,
    mem_get_info,
    memory_summary,
)
"""What ``torch.vk`` takes over from here."""
