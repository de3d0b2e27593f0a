"""``torch.vk.Stream`` and ``torch.vk.Event``: the device has one queue, and these describe it.

In: a device. Out: objects with torch.cuda's methods, so that code written for streams runs.
Forbidden: pretending to overlap work; every operation waits, or says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from torchvk_compile.device import physical
from torchvk_compile.device.selection import Device, index_of


class Stream:
    """The device's only queue. All streams of a device are the same one, in submission order."""

    stream_id = 0

    def __init__(self, device: Device = None, priority: int = 0) -> None:
        self.device_index = index_of(device)
        self.priority = priority

    def synchronize(self) -> None:
        """Wait until everything submitted so far has finished."""
        synchronize(self.device_index)

    def query(self) -> bool:
        """Whether everything submitted so far has finished."""
        return _finished(self.device_index)

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to do: work runs in the order it was submitted."""

    def wait_event(self, event: Event) -> None:
        """Nothing to do: work runs in the order it was submitted."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event` (or a new one) at the end of the work submitted so far."""
        event = event or Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device_index == self.device_index

    def __hash__(self) -> int:
        return hash((Stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.vk.Stream device=vk:{self.device_index}>"


class Event:
    """A point in a device's work. Times are host times, taken after the work before it is done."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise RuntimeError("vk events cannot be shared between processes")
        self.enable_timing = enable_timing
        self._device_index: int | None = None
        self._recorded_at: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of the work submitted so far. With timing enabled this waits for it."""
        self._device_index = index_of(None) if stream is None else stream.device_index
        if self.enable_timing:
            synchronize(self._device_index)
            self._recorded_at = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to do: work runs in the order it was submitted."""

    def synchronize(self) -> None:
        """Wait until the recorded work (and all submitted since) has finished."""
        if self._device_index is not None:
            synchronize(self._device_index)

    def query(self) -> bool:
        """Whether the recorded work (and all submitted since) has finished."""
        return self._device_index is None or _finished(self._device_index)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events that were recorded with ``enable_timing=True``."""
        if self._recorded_at is None or end_event._recorded_at is None:
            raise RuntimeError(
                "both events must have been created with enable_timing=True and recorded"
            )
        return (end_event._recorded_at - self._recorded_at) * 1e3


def synchronize(device: Device = None) -> None:
    """Wait until a device has finished all work.

    Raises:
        DeviceAssertError: a check inside a kernel failed.
        DeviceLostError: the driver gave up the device.
    """
    index = index_of(device)
    if index in physical.opened_indices():
        physical.runtime_device(index).synchronize()


def current_stream(device: Device = None) -> Stream:
    """The device's stream."""
    return Stream(device)


def set_stream(stream: Stream | None) -> None:
    """Nothing to do: there is one stream per device."""


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[Stream | None]:
    """Run the block as usual: there is one stream per device."""
    yield stream


def _finished(index: int) -> bool:
    return index not in physical.opened_indices() or physical.runtime_device(index).query()
