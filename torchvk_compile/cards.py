"""Graphics cards by their specifications, and the roofline that memory and arithmetic set.

In: nothing. Out: `Card`s and their `Roof`s.
Forbidden: measured numbers; shares of a peak that kernels reach, which are for those who predict to choose.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Roof:
    """The speeds that bound every kernel of a device.

    Attributes:
        bytes_per_second: of the memory.
        flops_per_second: of float32 multiply-adds, two operations each.
        source: where the numbers come from, "measured" or "specification".
    """

    bytes_per_second: float
    flops_per_second: float
    source: str

    def seconds(self, nbytes: int, flops: int) -> float:
        """The shortest time in which this much could be moved and computed (Williams et al., 2009, "Roofline")."""
        return max(nbytes / self.bytes_per_second, flops / self.flops_per_second)


@dataclasses.dataclass(frozen=True)
class Card:
    """A card's nominal numbers.

    Attributes:
        name: for people.
        matches: part of the Vulkan device's name.
        bytes_per_second: of its memory.
        flops: float32 operations per second, a fused multiply-add as two.
        compute_units: compute units or multiprocessors.
        simd_cycles_per_second: SIMDs times clock; 0 where no instruction statistics exist.
        source: where the numbers come from.
    """

    name: str
    matches: str
    bytes_per_second: float
    flops: float
    compute_units: int
    simd_cycles_per_second: float
    source: str

    @property
    def roof(self) -> Roof:
        """What the memory and the arithmetic units allow at best."""
        return Roof(self.bytes_per_second, self.flops, "specification")


RX_5600_XT = Card(
    name="Radeon RX 5600 XT",
    matches="5600 XT",
    bytes_per_second=288e9,
    flops=2304 * 2 * 1.56e9,
    compute_units=36,
    simd_cycles_per_second=36 * 2 * 1.56e9,
    source="AMD: 36 compute units of 64 lanes, boost 1560 MHz, 192 bits of 12 Gbit/s GDDR6",
)
H200 = Card(
    name="NVIDIA H200",
    matches="H200",
    bytes_per_second=4.8e12,
    flops=66.9e12,
    compute_units=132,
    simd_cycles_per_second=0,
    source="NVIDIA: H200 SXM, 4.8 TB/s HBM3e, 67 TFLOP/s float32",
)
CARDS = (RX_5600_XT, H200)


def card_of(device_name: str) -> Card | None:
    """The known card that a Vulkan device is, or None."""
    return next((card for card in CARDS if card.matches in device_name), None)
