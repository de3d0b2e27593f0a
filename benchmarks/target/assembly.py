"""Reading RDNA assembly as RADV prints it: the main loop and what it issues.

In: the text of a pipeline's assembly. Out: counts of instructions. Forbidden: knowing the kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_BLOCK = re.compile(r"^BB(\d+):$")
_BRANCH = re.compile(r"^s_(?:c?branch\w*) BB(\d+)")
_REPEATED = re.compile(r"^\(then repeated (\d+) times\)")

# Two operations a lane, and one; everything else on the vector unit moves data or works on addresses.
_FUSED = re.compile(r"^v_(?:fma|fmac|mad|mac|dot2|fma_mix\w*)_")
_PACKED_FUSED = re.compile(r"^v_pk_(?:fma|mad)")
_SINGLE = re.compile(
    r"^v_(?:add|sub|subrev|mul|max|min|rcp|rsq|sqrt|exp|log|sin|cos|max3|min3|add3)(?:_legacy)?_f(?:16|32|64)"
)


@dataclass(frozen=True)
class InstructionMix:
    """Vector instructions of a stretch of code.

    Attributes:
        vector: all of them.
        fused: fused multiply-adds.
        flops: floating-point operations that one lane does in them.
        loop: the stretch is a loop; otherwise it is the whole kernel.
    """

    vector: int
    fused: int
    flops: int
    loop: bool

    @property
    def fused_share(self) -> float:
        return self.fused / self.vector if self.vector else 0.0

    @property
    def flops_per_instruction(self) -> float:
        return self.flops / self.vector if self.vector else 0.0


def whole(assembly: str) -> InstructionMix:
    """The mix of the whole kernel."""
    return _mix([line for block in _blocks(assembly) for line in block], loop=False)


def main_loop(assembly: str) -> InstructionMix:
    """The mix of the innermost loop with the most vector instructions; of the whole kernel if it has no loop."""
    blocks = _blocks(assembly)
    loops = set()
    for position, block in enumerate(blocks):
        for line in block:
            if (branch := _BRANCH.match(line)) and int(branch[1]) <= position:
                loops.add((int(branch[1]), position))
    innermost = [
        (first, last)
        for first, last in loops
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops)
    ]
    mixes = [
        _mix([line for block in blocks[first : last + 1] for line in block], loop=True)
        for first, last in innermost
    ]
    longest = max(mixes, key=lambda mix: mix.vector, default=None)
    # A search in the argument table runs on the scalar unit alone.
    return longest if longest is not None and longest.vector else whole(assembly)


def _blocks(assembly: str) -> list[list[str]]:
    """Instructions by basic block; repeated ones are written out."""
    blocks: list[list[str]] = []
    for raw in assembly.splitlines():
        line = raw.split(";")[0].strip()
        if _BLOCK.match(line):
            blocks.append([])
        elif not line or not blocks:
            continue
        elif repeated := _REPEATED.match(line):
            blocks[-1] += [blocks[-1][-1]] * int(repeated[1])
        else:
            blocks[-1].append(line)
    return blocks


def _mix(lines: list[str], *, loop: bool) -> InstructionMix:
    kinds: Counter[str] = Counter()
    for line in lines:
        if not line.startswith("v_"):
            continue
        kinds["vector"] += 1
        if _PACKED_FUSED.match(line):
            kinds["fused"] += 1
            kinds["flops"] += 4
        elif _FUSED.match(line):
            kinds["fused"] += 1
            kinds["flops"] += 2
        elif _SINGLE.match(line):
            kinds["flops"] += 1
    return InstructionMix(kinds["vector"], kinds["fused"], kinds["flops"], loop)
