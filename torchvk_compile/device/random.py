"""Random numbers on ``vk``: one (seed, offset) pair per device, from which graphs draw their seeds.

In: torch.manual_seed, torch.vk.{manual_seed,set_rng_state,…}. Out: a 64-bit seed per random graph.
Forbidden: device work; a state that depends on which device it belongs to.

torch offers no Python hook for generators of such a device, so ``torch.Generator(device="vk")``
does not exist; ``torch.vk`` keeps the state instead and an op's ``generator=`` may be a CPU
generator.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torchvk_compile.device import physical

_MASK = (1 << 64) - 1
_STATE = struct.Struct("<QQ")
_DEFAULT_SEED = 67280421310721  # torch's own default_rng_seed_val (c10/core/GeneratorImpl.h)

_lock = threading.Lock()
_override = threading.local()


@dataclass
class _State:
    seed: int
    offset: int = 0

    def draw(self) -> int:
        self.offset += 1
        return _mix(self.seed, self.offset)


_states: dict[int, _State] = {}
_initial = _DEFAULT_SEED


def next_seed(device_index: int) -> int:
    """Seed for one run of a random graph on ``vk:<index>``, below 2**64; advances the state."""
    override = getattr(_override, "state", None)
    if override is not None:
        return override.draw()
    with _lock:
        return _state(device_index).draw()


@contextlib.contextmanager
def drawn_from(generator: torch.Generator) -> Iterator[None]:
    """Let graphs run by this thread take their seeds from a CPU generator."""
    if generator.device.type != "cpu":
        raise RuntimeError(
            f"Expected a 'cpu' generator for a vk operator but found {generator.device.type!r}; vk "
            "devices have no generator objects of their own"
        )
    seed = torch.randint(-(1 << 63), (1 << 63) - 1, (), generator=generator, device="cpu").item()
    _override.state = _State(int(seed) & _MASK)
    try:
        yield
    finally:
        _override.state = None


def manual_seed(seed: int) -> None:
    """Seed the current device. `seed` is taken modulo 2**64."""
    with _lock:
        _states[physical.current_device()] = _State(int(seed) & _MASK)


def manual_seed_all(seed: int) -> None:
    """Seed every vk device, those not opened yet included. torch.manual_seed calls this."""
    global _initial
    with _lock:
        _initial = int(seed) & _MASK
        _states.clear()


def seed() -> int:
    """Seed the current device from the operating system's entropy; returns the seed."""
    value = secrets.randbits(64)
    manual_seed(value)
    return value


def seed_all() -> int:
    """Seed every device from the operating system's entropy; returns the seed."""
    value = secrets.randbits(64)
    manual_seed_all(value)
    return value


def initial_seed() -> int:
    """The current device's seed."""
    with _lock:
        return _state(physical.current_device()).seed


def get_rng_state(device: int | str | torch.device = "vk") -> torch.Tensor:
    """The device's state as 16 bytes (seed, offset; little endian) in a CPU uint8 tensor."""
    with _lock:
        state = _state(_index(device))
        data = bytearray(_STATE.pack(state.seed, state.offset))
    return torch.frombuffer(data, dtype=torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = "vk") -> None:
    """Restore what `get_rng_state` returned. Raises RuntimeError for anything else."""
    if new_state.dtype is not torch.uint8 or new_state.numel() != _STATE.size:
        raise RuntimeError(
            f"the state of a vk generator is a uint8 tensor of {_STATE.size} elements, not "
            f"{new_state.dtype} with {new_state.numel()}"
        )
    seed_value, offset = _STATE.unpack(bytes(new_state.cpu().tolist()))
    with _lock:
        _states[_index(device)] = _State(seed_value, offset)


def get_rng_state_all() -> list[torch.Tensor]:
    """`get_rng_state` of every device."""
    return [get_rng_state(index) for index in range(physical.device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """`set_rng_state` of every device."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _state(index: int) -> _State:
    return _states.setdefault(index, _State(_initial))


def _index(device: int | str | torch.device) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return physical.current_device() if index is None else index


def _mix(seed_value: int, offset: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014) over two words."""
    z = (seed_value + offset * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
