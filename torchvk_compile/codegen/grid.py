"""The grid of a dispatch: a number of workgroups, laid out within what the device allows along x.

In: numbers of workgroups, the device's profile. Out: workgroups in x, y and z. Forbidden: knowing kernels.

A kernel whose grid may be folded numbers its workgroups with `linearGroup` (`lib/torchvk_grid.slang`); its rows are of
equal length, so that fewer workgroups than rows are without work.
"""

from __future__ import annotations

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max

from torchvk_compile.codegen.device_profile import current_profile


def is_folded(groups: sympy.Expr) -> bool:
    """Whether so many workgroups may need more than one row."""
    return not V.graph.sizevars.statically_known_leq(groups, _longest_row())


def grid(groups: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr]:
    """Workgroups in x, y, z that hold `groups` of them."""
    groups = sympy.sympify(groups)
    if not is_folded(groups):
        return groups, sympy.S.One, sympy.S.One
    rows = Max(sympy.S.One, CeilDiv(groups, sympy.Integer(_longest_row())))
    return FloorDiv(groups + rows - 1, rows), rows, sympy.S.One


def linear_groups(numel: sympy.Expr, per_group: int) -> sympy.Expr:
    """Workgroups for `numel` rows at `per_group` rows each."""
    return CeilDiv(sympy.sympify(numel), sympy.Integer(per_group))


def _longest_row() -> int:
    return int(current_profile().max_workgroup_count[0])
