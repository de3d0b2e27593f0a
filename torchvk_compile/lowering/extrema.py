"""Places of extrema in few long rows: argmax, argmin, max and min with their indices, in two steps.

In: the ATen operators. Out: extrema of parts of the rows, then the extremum of those. Forbidden: reduction code.

Inductor splits sums over few long rows among workgroups, but no reductions that carry an index. The lowest index of an
extremum wins, and the first NaN; parts in order keep that.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch._inductor import ir

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.tiles import compute_units
from torchvk_compile.lowering.decomposed import route_decomposition

_aten = torch.ops.aten

_SHORTEST_PART = 4096
"""Elements a workgroup should have: 16 for each of its invocations."""

_PARTS_PER_UNIT = 4
"""Workgroups for each compute unit, so that some read while others combine."""


def register_extrema() -> None:
    """Split the long rows of vk tensors."""
    for name in ("max", "min"):
        arg = getattr(_aten, f"arg{name}")
        value = getattr(_aten, f"a{name}")

        def place(
            x: torch.Tensor,
            dim: int | None = None,
            keepdim: bool = False,
            arg: Any = arg,
            value: Any = value,
        ) -> torch.Tensor:
            return _place(x, dim, keepdim, arg, value)

        def both(
            x: torch.Tensor, dim: int, keepdim: bool = False, arg: Any = arg, value: Any = value
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return value(x, [dim], keepdim), _place(x, dim, keepdim, arg, value)

        route_decomposition(arg.default, place, unless=_is_one_step)
        route_decomposition(getattr(_aten, name).dim, both, unless=_is_one_step)


def parts_of_row(rows: int, length: int, units: int) -> int:
    """How many parts a row is split into; 1 if there are rows enough, or they are short.

    Args:
        rows, length: of the reduction.
        units: compute units of the device.
    """
    wanted = min(_PARTS_PER_UNIT * units // max(rows, 1), length // _SHORTEST_PART)
    return max(wanted, 1)


def _is_one_step(x: ir.TensorBox, dim: int | None = None, keepdim: bool = False) -> bool:
    size = x.get_size()
    if not size or not all(isinstance(extent, (int, sympy.Integer)) for extent in size):
        return True
    count = math.prod(int(extent) for extent in size)
    length = count if dim is None else int(size[dim])
    if count == 0:
        return True
    return parts_of_row(count // length, length, _units(x.get_device())) == 1


def _place(x: torch.Tensor, dim: int | None, keepdim: bool, arg: Any, value: Any) -> torch.Tensor:
    if x.dtype is torch.bool:
        x = x.to(torch.uint8)
    rows = x.reshape(-1) if dim is None else x.movedim(dim, -1)
    length = rows.shape[-1]
    units = _units(x.device)
    parts = parts_of_row(rows.numel() // length, length, units)
    # Whole vectors to a part; what is missing at the end of the last can not win, since its indices are the highest.
    part = -(-length // (4 * parts)) * 4
    parts = -(-length // part)
    worst = _worst(rows.dtype, value is _aten.amax)
    padded = torch.nn.functional.pad(rows, (0, parts * part - length), value=worst)
    split = padded.unflatten(-1, (parts, part))
    best, extrema = arg(split, -1), value(split, [-1])
    which = arg(extrema, -1, True)
    place = (which * part + best.gather(-1, which)).squeeze(-1)
    if not keepdim:
        return place
    return place.reshape([1] * x.dim()) if dim is None else place.unsqueeze(dim)


def _worst(dtype: torch.dtype, largest: bool) -> float | int:
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max


def _units(device: torch.device) -> int:
    return compute_units(profile_of(device.index or 0))
