"""Kernels of discrete Fourier transforms of rows that fit shared memory.

In: rows of pairs or real numbers, and a length whose prime factors are all in `RADICES`. Out: launches. Forbidden:
lengths that need several passes over memory (`lowering/fourier.py` composes them).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv, FloorDiv

from torchvk_compile.codegen.dtypes import compute_type, literal
from torchvk_compile.codegen.launch import Launch, Shell, contiguous_input

RADICES = (2, 3, 4, 5, 7, 8, 11, 13)
"""Numbers of places that one invocation combines in registers."""

SHARED_BYTES = 32 * 1024
"""Shared memory that every device has; a row has to fit it."""

_TILE_BYTES = 16 * 1024
_PAIRS_EACH = 8
_SMALLEST_WORKGROUP, _LARGEST_WORKGROUP = 32, 256


@dataclasses.dataclass(frozen=True)
class Transform:
    """One launch: what it does to every row. Places of a row are `inner` pairs (numbers) apart.

    Attributes:
        length: places per row.
        stored: places written per row.
        input: "pairs", "real", or "half": length // 2 + 1 pairs, the others are their conjugates.
        output: "pairs" or "real".
        inverse: the exponent's sign is positive.
        scale: factor of the result.
        turn_length: 0, or the length of a longer transform of which this is the first step: place k of the row in
            column c is turned by c k / turn_length.
    """

    length: int
    stored: int
    input: str
    output: str
    inverse: bool
    scale: float
    turn_length: int = 0


def longest_row(dtype: torch.dtype) -> int:
    """Places of the longest row that fits shared memory.

    Args:
        dtype: of a part of a pair.
    """
    return SHARED_BYTES // (2 * dtype.itemsize)


def radices(length: int) -> list[int] | None:
    """Radices whose product is `length`, few and large ones; None where a prime factor is none of them."""
    found = []
    for radix in (13, 11, 7, 5, 3):
        while length % radix == 0:
            found.append(radix)
            length //= radix
    if length & (length - 1):
        return None
    twos = length.bit_length() - 1
    # 8 · 2 is 4 · 4 in as many passes, and cheaper.
    eights = twos // 3 - (1 if twos % 3 == 1 and twos > 1 else 0)
    rest = twos - 3 * eights
    return found + [8] * eights + [4] * (rest // 2) + [2] * (rest % 2)


def transform_rows(
    x: Any,
    transform: Transform,
    rows: sympy.Expr,
    inner: sympy.Expr,
    inner_out: sympy.Expr,
    turn_inner: sympy.Expr,
) -> ir.TensorBox:
    """Transform every row.

    Args:
        x: contiguous; row r starts at place r // inner * length * inner + r % inner.
        inner, inner_out: how far places of a row are apart in the input and in the output.
        turn_inner: row r is in column r // turn_inner % (turn_length // length).

    Returns:
        rows / inner_out x stored x inner_out, and x 2 for pairs.
    """
    node = contiguous_input(x)
    dtype = node.get_dtype()
    plan = radices(transform.length)
    assert plan, transform
    tile = max(1, _TILE_BYTES // (2 * dtype.itemsize * transform.length))
    known = V.graph.sizevars.optimization_hint(rows, fallback=tile)
    together = max(1, min(tile, known))
    pairs = together * transform.length
    workgroup = 1 << max(0, (-(-pairs // _PAIRS_EACH) - 1)).bit_length()
    shell = Shell(
        template="fourier.slang.j2",
        workgroup_size=min(max(workgroup, _SMALLEST_WORKGROUP), _LARGEST_WORKGROUP),
        modules=("torchvk_memory", "torchvk_fourier"),
        values={
            "real": compute_type(dtype),
            "length": transform.length,
            "stored": transform.stored,
            "input": transform.input,
            "output": transform.output,
            "inverse": transform.inverse,
            "scale": literal(transform.scale, dtype) if transform.scale != 1 else "",
            "twiddled": transform.turn_length > 0,
            "turn_length": transform.turn_length,
            "radices": plan,
            "rows": together,
            "beside": not V.graph.sizevars.statically_known_equals(inner, 1),
            "roots": {p: _roots(p, dtype) for p in RADICES if p % 2},
            "half_root": literal(math.sqrt(0.5), dtype),
        },
    )
    size = [FloorDiv(rows, inner_out), sympy.Integer(transform.stored), inner_out]
    sizes = {"row_count": rows, "inner": inner, "inner_out": inner_out}
    if transform.turn_length:
        sizes["turn_inner"] = turn_inner
    return Launch.create(
        node.get_device(),
        dtype,
        size if transform.output == "real" else [*size, sympy.Integer(2)],
        shell,
        {"numbers": node},
        sizes,
        CeilDiv(rows, sympy.Integer(together)),
    )


def _roots(radix: int, dtype: torch.dtype) -> list[tuple[str, str]]:
    angles = (2 * math.pi * k / radix for k in range(radix))
    return [(literal(math.cos(a), dtype), literal(math.sin(a), dtype)) for a in angles]
