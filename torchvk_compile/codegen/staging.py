"""Operands of a tiled kernel that cross its tile: read along their own axis, kept in shared memory.

In: loads of a pointwise kernel with a `transposes.Tile`. Out: lines that fill shared memory before the kernel's body,
and the elements in it. Forbidden: choosing what a tile looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, IndentedBuffer
from torch._inductor.utils import sympy_subs

from torchvk_compile import config
from torchvk_compile.codegen import transposes
from torchvk_compile.codegen.dtypes import compute_dtype, compute_type, storage_type, to_compute
from torchvk_compile.codegen.lanes import starts_aligned
from torchvk_compile.codegen.templates import KERNEL_NAME

if TYPE_CHECKING:
    from torch._inductor.codegen.simd import IterationRangesEntry


class StagingCodegen:
    """The part of `SlangKernel` that knows `Tile`."""

    profile: Any
    tile: transposes.Tile | None
    staging: IndentedBuffer
    helpers: IndentedBuffer
    loads: IndentedBuffer
    cse: Any
    range_tree_nodes: dict[sympy.Symbol, IterationRangesEntry]
    _staged: dict[str, str]
    _row_tree: Any
    _in_root_terms: Any
    index_to_str: Any
    simplify_indexing: Any

    def _choose_tile(self, indices: Sequence[sympy.Expr]) -> transposes.Tile | None:
        """A tile for operands that are consecutive along another axis than the kernel's own."""
        if "vectors" in config.without or not transposes.pay(self.profile):
            return None
        simplified = [self.simplify_indexing(index) for index in indices]
        return transposes.choose_tile(simplified, self.range_tree_nodes, self._row_tree().numel)

    def _staged_load(
        self, name: str, pointer: str, dtype: torch.dtype, index: sympy.Expr
    ) -> CSEVariable | None:
        """An element of an operand that crosses the tile, by way of shared memory."""
        crossing, tile = transposes.crossing_of(index, self.range_tree_nodes), self.tile
        assert tile is not None
        if crossing is None or (crossing.fast, crossing.stride, crossing.length) != (
            tile.fast,
            tile.stride,
            tile.length,
        ):
            return None
        register = compute_dtype(dtype)
        shared_type = _shared_type(register)
        key = f"{pointer}[{index}]"
        if key not in self._staged:
            if len(self._staged) == transposes.MOST_STAGED:
                return None
            shared = f"{KERNEL_NAME}_tile{len(self._staged)}"
            self._staged[key] = shared
            self.helpers.writeline(f"groupshared {shared_type} {shared}[{tile.side * tile.row}];")
            tree = self._row_tree()
            first = sympy.Symbol("crossing", integer=True, nonnegative=True)
            place = self.index_to_str(
                sympy_subs(self._in_root_terms(index, tree), {tree.index_sym(): first})
            )
            if tile.lanes == 1:
                value = to_compute(dtype, f"load({pointer}, {place})")
                self.staging.writeline(
                    f"{shared}[across * {tile.row} + along] = {shared_type}({value});"
                )
            else:
                aligned = "ALIGNED" if crossing.aligned and starts_aligned(name) else "false"
                vector = f"crossing{len(self._staged) - 1}"
                value = to_compute(dtype, f"{vector}[lane]")
                self.staging.writelines(
                    [
                        f"let {vector} = loadVector<{storage_type(dtype)}, {tile.lanes}, {aligned}>"
                        f"({pointer}, {place}, crossing_count);",
                        "[unroll]",
                        f"for (int lane = 0; lane < {tile.lanes}; ++lane)",
                        f"    {shared}[across * {tile.row} + along + lane] = {shared_type}({value});",
                    ]
                )
        lane = f" + lane * {tile.row}" if tile.lanes > 1 else ""
        text = f"{compute_type(register)}({self._staged[key]}[along * {tile.row} + across{lane}])"
        return self.cse.generate(self.loads, text, dtype=register)


def _shared_type(register: torch.dtype) -> str:
    """What values are in shared memory: 8 and 16 bits are optional there."""
    return compute_type(register) if register.itemsize >= 4 else "int"
