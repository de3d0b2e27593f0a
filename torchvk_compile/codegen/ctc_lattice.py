"""The kernel of connectionist temporal classification: log probabilities of all ways to every position.

In: log probabilities by time and position. Out: their running sums over ways. Forbidden: knowing labels.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from torchvk_compile.codegen.dtypes import compute_type, literal
from torchvk_compile.codegen.launch import Launch, Shell, contiguous_input

_WORKGROUP = 256
_SHARED_BYTES = 32 * 1024


def longest_lattice(dtype: torch.dtype) -> int:
    """Positions whose values of two steps fit the shared memory every device has."""
    return _SHARED_BYTES // (2 * dtype.itemsize)


def lattice(emissions: Any, skips: Any) -> ir.TensorBox:
    """Sums over all ways, in logarithms.

    Args:
        emissions: (sequences, times, positions) log probabilities, float32 or float64.
        skips: (sequences, positions) bool: whether a way may come from two positions before.

    Returns:
        As `emissions`: the log probability of all ways that are at the position at that time.
    """
    sequences, times, positions = emissions.get_size()
    dtype = emissions.get_dtype()
    inputs = {"emissions": contiguous_input(emissions), "skips": contiguous_input(skips)}
    wide = "64" if dtype is torch.float64 else ""
    shell = Shell(
        template="ctc_lattice.slang.j2",
        workgroup_size=_WORKGROUP,
        modules=("torchvk_memory", f"torchvk_exponential{wide}"),
        values={
            "scalar": compute_type(dtype),
            "impossible": literal(-math.inf, dtype),
            "capacity": _capacity(positions, dtype),
        },
    )
    sizes = {"sequence_count": sequences, "time_count": times, "position_count": positions}
    return Launch.create(
        emissions.get_device(),
        dtype,
        [sequences, times, positions],
        shell,
        inputs,
        sizes,
        sequences,
    )


def _capacity(positions: sympy.Expr, dtype: torch.dtype) -> int:
    longest = longest_lattice(dtype)
    if V.graph.sizevars.statically_known_leq(positions, longest // 8):
        return longest // 8
    return longest
