"""What the shells of matrix products, `gemm_tile` (GPUs) and `gemm_panel` (CPU drivers), must know.

In: a `TemplateBuffer` with operands (B, M, K) and (B, K, N), and a `GemmConfig`. Out: values for
the shells. Forbidden: choosing the configuration, knowing which ATen operator asks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.dtypes import compute_type, storage_type, to_compute
from torchvk_compile.codegen.gemm_config import GemmConfig, PanelConfig, TileConfig
from torchvk_compile.codegen.grid import is_folded
from torchvk_compile.codegen.layout import LANES, WorkgroupLayout
from torchvk_compile.codegen.template_kernel import Epilogue, TemplateKernel

_PACKED = {1: "uint", 2: "uint2"}


@dataclasses.dataclass(frozen=True)
class Operand:
    """How a shell reads one operand.

    Attributes:
        pointer: name of the argument.
        storage: Slang type of an element in memory.
        scalar: an accumulator element, as a Slang expression of what memory holds, `stored`.
        packed: Slang type of four stored elements in registers, see `torchvk_gemm.slang`.
        unpack: function or type that makes accumulator elements of it; empty where it has them.
        origin: element index of the current batch's matrix.
        outer_stride: elements between neighbours along M or N.
        k_stride: elements between neighbours along K.
        run: the dimension that vectors are loaded along, ``"k"`` or ``"outer"``.
        contiguous: a vector's elements are consecutive in memory.
        aligned: and start at multiples of `LANES` elements whenever the buffer is aligned.
        exact: and a vector is inside the matrix or outside, never both; and the matrix fills a tile,
            so that reading something for what is missing of the last one costs little.
    """

    pointer: str
    storage: str
    scalar: str
    packed: str
    unpack: str
    origin: str
    outer_stride: str
    k_stride: str
    run: str
    contiguous: bool
    aligned: bool
    exact: bool


class GemmKernel(TemplateKernel):
    """``output[b, m, n] = epilogue(sum over k of a[b, m, k] * b[b, k, n])``.

    Args:
        output: of size (M, N) or (B, M, N); with a split K (S, M, N) or (S, B, M, N), partial sums.
        a, b: operands with fixed layouts, 2-d or 3-d.
        config: the tiling.
        accumulator: dtype of the sums: float32, float64, int32 or int64.
        epilogue: see `TemplateKernel`.
    """

    def __init__(
        self,
        output: ir.TemplateBuffer,
        a: ir.IRNode,
        b: ir.IRNode,
        config: GemmConfig,
        accumulator: torch.dtype,
        epilogue: Epilogue | None,
    ) -> None:
        panel = isinstance(config, PanelConfig)
        leading = ["part"] * (config.split_k > 1) + ["batch"] * (len(a.get_size()) == 3)
        super().__init__(
            output,
            index_names=[*leading, "m", "n"],
            value="results[i]" if panel else "sums[i][j]",
            accumulator=accumulator,
            epilogue=epilogue,
            template="gemm_panel.slang.j2" if panel else "gemm_tile.slang.j2",
            layout=_workgroup(config),
            configuration=str(config),
        )
        self._a, self._b, self._config = a, b, config
        if not panel:
            self.require("torchvk_gemm")

    def product_flops(self) -> sympy.Expr:
        return 2 * sympy_product(self._a.get_size()) * self._b.get_size()[-1]

    def shell_values(self) -> dict[str, Any]:
        config = self._config
        *batch, m, k = self._a.get_size()
        n = self._b.get_size()[-1]
        count = batch[0] if batch else sympy.Integer(1)
        self.groups = (
            CeilDiv(m, config.block_m) * CeilDiv(n, config.block_n) * count * config.split_k
        )
        return {
            "config": config,
            "scalar": compute_type(self._accumulator),
            "floating": self._accumulator.is_floating_point,
            "size_m": self.argument("size_m", m),
            "size_n": self.argument("size_n", n),
            "size_k": self.argument("size_k", k),
            "size_batch": self.argument("size_batch", count) if batch else None,
            "ragged": not V.graph.sizevars.statically_known_multiple_of(k, _longest_step(config)),
            "folded": is_folded(self.groups),
            "operand_a": self._operand("a", self._a, config.block_m, outer=-2, inner=-1),
            "operand_b": self._operand("b", self._b, config.block_n, outer=-1, inner=-2),
        }

    def _operand(
        self, name: str, node: ir.IRNode, block: int, *, outer: int, inner: int
    ) -> Operand:
        layout, size, dtype = node.get_layout(), node.get_size(), node.get_dtype()
        known_multiple = V.graph.sizevars.statically_known_multiple_of
        along_outer, along_k = (
            # The stride of a dimension of one element says nothing.
            sympy.Integer(0)
            if V.graph.sizevars.statically_known_equals(size[at], 1)
            else layout.stride[at]
            for at in (outer, inner)
        )
        unit_outer, unit_k = (
            V.graph.sizevars.statically_known_equals(s, 1) for s in (along_outer, along_k)
        )
        run = "k" if unit_k else "outer"
        batch_stride = layout.stride[0] if len(size) == 3 else sympy.Integer(0)
        contiguous = unit_outer or unit_k
        steps = (along_outer if unit_k else along_k, layout.offset, batch_stride)
        aligned = contiguous and all(known_multiple(step, LANES) for step in steps)
        origin = self.index_to_str(layout.offset)
        if batch_stride != 0:
            origin = f"batch * {self.argument(f'{name}_batch_stride', batch_stride)} + {origin}"
        return Operand(
            pointer=self.args.input(node.get_name()),
            storage=storage_type(dtype),
            scalar=f"{compute_type(self._accumulator)}({to_compute(dtype, 'stored')})",
            packed=_PACKED.get(dtype.itemsize, f"vector<{storage_type(dtype)}, 4>"),
            unpack="" if dtype.itemsize >= 4 else f"unpack{_capitalised(dtype)}",
            origin=origin,
            outer_stride="1" if unit_outer else self.argument(f"{name}_outer_stride", along_outer),
            k_stride="1" if unit_k else self.argument(f"{name}_k_stride", along_k),
            run=run,
            contiguous=contiguous,
            aligned=aligned,
            exact=aligned
            and known_multiple(size[inner if run == "k" else outer], LANES)
            and not V.graph.sizevars.statically_known_lt(size[outer], block),
        )


def _workgroup(config: GemmConfig) -> WorkgroupLayout:
    if isinstance(config, PanelConfig):
        return WorkgroupLayout(
            config.subgroup, 1, 1, config.subgroup, inner=False, persistent=False
        )
    return WorkgroupLayout(config.workgroup_size, 1, LANES, 1, inner=False, persistent=False)


def _longest_step(config: GemmConfig) -> int:
    """K of a multiple of this many elements leaves no workgroup with a step that is partly empty."""
    return config.block_k * config.split_k if isinstance(config, TileConfig) else config.steps


def _capitalised(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").capitalize()
