"""What a dispatch should take on the RX 5600 XT, from its compiled code and the work it has to do.

In: instruction mixes, bytes, operations. Out: seconds. Forbidden: measuring; nothing here has run on the card.
"""

from __future__ import annotations

from dataclasses import dataclass

from target.assembly import InstructionMix
from torchvk_compile.cards import RX_5600_XT

LANE_INSTRUCTIONS = RX_5600_XT.flops / 2
"""Of all lanes together, per second; a fused multiply-add is one."""


@dataclass(frozen=True)
class Prediction:
    """Seconds of one dispatch: by the code that was compiled, and by the card's limits alone."""

    seconds: float
    limit: float

    @property
    def share(self) -> float:
        """Of the roofline; 1 where memory traffic that cannot be saved is the limit."""
        return self.limit / self.seconds if self.seconds else 1.0


def predict(
    loop: InstructionMix, kernel: InstructionMix, invocations: int, nbytes: int, flops: int
) -> Prediction:
    """The time of a dispatch, whichever is longer: its memory traffic, or issuing its vector instructions.

    The instructions of straight code are counted; those of a loop follow from the operations to be done and
    the loop's operations per instruction. Latency and launches are left out.

    Args:
        loop: the kernel's main loop (or the whole kernel where it has none).
        kernel: the whole kernel.
        invocations: of the dispatch.
        nbytes: least memory traffic.
        flops: least operations.
    """
    if loop.loop and loop.flops:
        instructions = flops / loop.flops_per_instruction
    else:
        instructions = float(kernel.vector * invocations)
    limit = RX_5600_XT.roof.seconds(nbytes, flops)
    return Prediction(max(limit, instructions / LANE_INSTRUCTIONS), limit)
