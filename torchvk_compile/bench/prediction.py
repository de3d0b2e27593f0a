"""What a card would need for the experiments, from what the kernels move and compute: a roofline.

In: kernels of compiled graphs, a `Card`. Out: predicted seconds, marked as such. Forbidden: fitting anything to the
results that a prediction is compared with.

A dispatch takes the longest of

- its bytes over the memory's speed (Williams, Waterman and Patterson, 2009, "Roofline"), times `BANDWIDTH_SHARE`,
- its operations over the arithmetic peak, times `ARITHMETIC_SHARE`, on as many compute units as it has workgroups,
- where RADV's statistics are known and the kernel has no loop: subgroups times cycles per subgroup over all SIMDs,

plus `DISPATCH_SECONDS`. A step takes the longest of the sum over its dispatches and what the host needs to submit them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchvk_compile.cards import Card

BANDWIDTH_SHARE = 0.8
"""Of the memory's nominal speed that streaming kernels reach; copies on desktop cards usually do."""

ARITHMETIC_SHARE = 0.5
"""Of the arithmetic peak that matrix products reach: 0.64 of 52.8 TFLOP/s, measured when the tiles were chosen
(`codegen.gemm_config`), is half of that card's nominal 66.9."""

DISPATCH_SECONDS = 3e-6
"""A dispatch that waits for the one before it (`codegen.gemm_config`)."""

HOST_SECONDS_PER_GRAPH = 60e-6
HOST_SECONDS_PER_DISPATCH = 1e-6
"""Goals of `benchmarks/overheads.py` for a replay, Python included."""


@dataclass(frozen=True)
class Prediction:
    """Of one step.

    Attributes:
        seconds: from submission to the end of the last kernel, steadily repeated.
        bound: what takes most of the time: memory, arithmetic, instructions, launches or host.
        moved_bytes, flops: of all dispatches together.
        dispatches: kernels launched.
    """

    seconds: float
    bound: str
    moved_bytes: int
    flops: int
    dispatches: int


def predict(kernels: Sequence[Mapping[str, Any]], card: Card) -> Prediction:
    """A step's time on a card.

    Args:
        kernels: every dispatch of the step (`work.kernels_of`), perhaps with RADV's statistics.
        card: the card.
    """
    spent = {"launches": DISPATCH_SECONDS * len(kernels)}
    for kernel in kernels:
        bound, seconds = limit_of(kernel, card)
        spent[bound] = spent.get(bound, 0.0) + seconds
    graphs = len({kernel["plan"] for kernel in kernels})
    device = sum(spent.values())
    host = HOST_SECONDS_PER_GRAPH * graphs + HOST_SECONDS_PER_DISPATCH * len(kernels)
    return Prediction(
        seconds=max(device, host),
        bound="host" if host > device else max(spent, key=lambda bound: spent[bound]),
        moved_bytes=sum(_bytes(kernel) for kernel in kernels),
        flops=sum(kernel["flops"] for kernel in kernels),
        dispatches=len(kernels),
    )


def limit_of(kernel: Mapping[str, Any], card: Card) -> tuple[str, float]:
    """What limits one dispatch (memory, arithmetic or instructions), and the seconds that takes, without its launch."""
    busy = min(1.0, max(kernel["workgroups"], 1) / card.compute_units)
    limits = {
        "memory": _bytes(kernel) / (card.bytes_per_second * BANDWIDTH_SHARE),
        "arithmetic": kernel["flops"] / (card.flops * ARITHMETIC_SHARE * busy),
    }
    statistics = kernel.get("statistics")
    if statistics and card.simd_cycles_per_second and not statistics["loops"]:
        invocations = kernel["workgroups"] * kernel["workgroup_size"]
        subgroups = -(-invocations // statistics["subgroup_size"])
        cycles = subgroups * statistics["cycles_per_subgroup"]
        limits["instructions"] = cycles / (card.simd_cycles_per_second * busy)
    bound = max(limits, key=lambda name: limits[name])
    return bound, limits[bound]


def _bytes(kernel: Mapping[str, Any]) -> int:
    return kernel["read_bytes"] + kernel["written_bytes"]
