"""Launches of the kernels of linear algebra: a workgroup per matrix, or per matrix and block of columns.

In: batches of real matrices (matrix count x rows x columns), contiguous. Out: one buffer each; kernels with several
results put them side by side into a *record* per matrix. Forbidden: knowing ATen.

Whole numbers in a record are stored as numbers of the matrix's dtype, which holds every row number of a matrix that
fits memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
from torch._inductor import ir
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.device_profile import profile_of
from torchvk_compile.codegen.dtypes import compute_type
from torchvk_compile.codegen.launch import Launch, Shell, contiguous_input
from torchvk_compile.codegen.layout import reduction_subgroup

_MODULES = ("torchvk_memory", "torchvk_reduce", "torchvk_matrix", "torchvk_complex")


@dataclasses.dataclass(frozen=True)
class Team:
    """The invocations of a workgroup.

    Attributes:
        rows, columns: how they are spread over a matrix; powers of two.
        subgroup: subgroup size the kernel relies on, 1 if none.
    """

    rows: int
    columns: int
    subgroup: int


def team_for(profile: Any, columns: int | None) -> Team:
    """A team of `columns` columns, or of one row for None.

    Drivers for the CPU run small workgroups better, since barriers cost them most.
    """
    subgroup = reduction_subgroup(profile)
    invocations = max(64 if profile.device_type == "cpu" else 256, subgroup)
    columns = columns or invocations
    return Team(invocations // columns, columns, subgroup)


def launch(
    kernel: str,
    inputs: Mapping[str, Any],
    size: Sequence[sympy.Expr],
    sizes: Mapping[str, Any],
    *,
    columns: int | None = 16,
    blocked_width: sympy.Expr | None = None,
    values: Mapping[str, Any] | None = None,
) -> ir.TensorBox:
    """Launch ``linalg_<kernel>.slang.j2`` on a batch of matrices.

    Args:
        inputs: tensors by argument name, the first of them the batch.
        size: of the output.
        sizes: further extents and flags by argument name; ``matrix_count`` is added.
        columns: of the team; None for as many as it has invocations.
        blocked_width: a workgroup handles a team's columns of so many columns; None: it handles a whole matrix.
        values: what else the template needs.
    """
    nodes = {name: contiguous_input(tensor) for name, tensor in inputs.items()}
    first = next(iter(nodes.values()))
    device, dtype = first.get_device(), first.get_dtype()
    team = team_for(profile_of(device.index or 0), columns)
    count = first.get_size()[0]
    shell = Shell(
        template=f"linalg_{kernel}.slang.j2",
        workgroup_size=team.rows * team.columns,
        modules=_MODULES,
        values={
            "real": compute_type(dtype),
            "rows": team.rows,
            "columns": team.columns,
            "subgroup": team.subgroup,
            **(values or {}),
        },
        subgroup_size=team.subgroup if team.subgroup > 1 else 0,
    )
    blocks = sympy.Integer(1)
    if blocked_width is not None:
        blocks = CeilDiv(blocked_width, sympy.Integer(team.columns))
    return Launch.create(
        device, dtype, size, shell, nodes, {"matrix_count": count, **sizes}, count * blocks
    )
