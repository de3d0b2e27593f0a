"""Matrix products on GPUs: a tile of the output per workgroup, operands staged through shared memory.

In: a `TemplateBuffer` with operands (B, M, K) and (B, K, N), and a `GemmConfig`. Out: values for `gemm.slang.j2`.
Forbidden: choosing the configuration, knowing which ATen operator asks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv

from torchvk_compile.codegen.dtypes import compute_type, storage_type
from torchvk_compile.codegen.gemm_config import GemmConfig
from torchvk_compile.codegen.template_kernel import LANES, Epilogue, TemplateKernel


@dataclasses.dataclass(frozen=True)
class Operand:
    """How the shell reads one operand.

    Attributes:
        pointer: name of the argument.
        storage: Slang type of an element in memory.
        vector: Slang expression of `LANES` accumulator elements, in terms of the stored vector `stored`.
        origin: element index of the matrix of the current batch.
        outer_stride: elements between neighbours along M or N.
        k_stride: elements between neighbours along K.
        run: the dimension that vectors are loaded along, ``"k"`` or ``"outer"``.
        contiguous: a vector's elements are consecutive in memory.
        aligned: and start at multiples of `LANES` elements whenever the buffer is aligned.
    """

    pointer: str
    storage: str
    vector: str
    origin: str
    outer_stride: str
    k_stride: str
    run: str
    contiguous: bool
    aligned: bool


class GemmKernel(TemplateKernel):
    """``output[b, m, n] = epilogue(sum over k of a[b, m, k] * c[b, k, n])``.

    Args:
        output: the buffer, of size (M, N) or (B, M, N); with a split K, (S, M, N) or (S, B, M, N) of partial sums.
        a, b: operands; `ir.Buffer` or `ir.ReinterpretView` with fixed layouts, 2-d or 3-d.
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
        leading = ["part"] * (config.split_k > 1) + ["batch"] * (len(a.get_size()) == 3)
        super().__init__(
            output,
            index_names=[*leading, "m", "n"],
            value="sums[i][j]",
            accumulator=accumulator,
            epilogue=epilogue,
            template="gemm.slang.j2",
            workgroup_size=config.workgroup_size,
        )
        self._a, self._b, self._config = a, b, config

    def shell_values(self) -> dict[str, Any]:
        config = self._config
        *batch, m, k = self._a.get_size()
        n = self._b.get_size()[-1]
        count = batch[0] if batch else sympy.Integer(1)
        tiles = CeilDiv(m, config.block_m) * CeilDiv(n, config.block_n)
        self.groups = tiles * count * config.split_k
        folded = not V.graph.sizevars.statically_known_leq(self.groups, 65535)
        scalar = compute_type(self._accumulator)
        return {
            "config": config,
            "scalar": scalar,
            "floating": self._accumulator.is_floating_point,
            "size_m": self.argument("size_m", m),
            "size_n": self.argument("size_n", n),
            "size_k": self.argument("size_k", k),
            "batched": bool(batch),
            "size_batch": self.argument("size_batch", count) if batch else "1",
            "folded": folded,
            "operand_a": self._operand("a", self._a, outer=-2, inner=-1),
            "operand_b": self._operand("b", self._b, outer=-1, inner=-2),
        }

    def _operand(self, name: str, node: ir.IRNode, *, outer: int, inner: int) -> Operand:
        layout = node.get_layout()
        dtype = node.get_dtype()
        sizevars = V.graph.sizevars
        stride, offset = layout.stride, layout.offset
        along_outer, along_k = stride[outer], stride[inner]
        # A dimension of size one has any stride.
        size = node.get_size()
        unit_outer = sizevars.statically_known_equals(along_outer, 1)
        unit_k = sizevars.statically_known_equals(along_k, 1)
        run = "k" if unit_k else "outer"
        other = along_outer if run == "k" else along_k
        batch_stride = stride[0] if len(size) == 3 else sympy.Integer(0)
        contiguous = unit_outer or unit_k
        aligned = contiguous and all(
            sizevars.statically_known_multiple_of(s, LANES) for s in (other, offset, batch_stride)
        )
        origin = self.index_to_str(offset) if offset != 0 else "0"
        if batch_stride != 0:
            origin = f"batch * {self.argument(f'{name}_batch_stride', batch_stride)} + {origin}"
        return Operand(
            pointer=self.args.input(node.get_name()),
            storage=storage_type(dtype),
            vector=_vector_conversion(dtype, self._accumulator),
            origin=origin,
            outer_stride="1" if unit_outer else self.argument(f"{name}_outer_stride", along_outer),
            k_stride="1" if unit_k else self.argument(f"{name}_k_stride", along_k),
            run=run,
            contiguous=contiguous,
            aligned=aligned,
        )


def _vector_conversion(dtype: torch.dtype, accumulator: torch.dtype) -> str:
    """From `LANES` stored elements to as many of the accumulator's type."""
    if dtype is torch.float16:
        return "halfToFloat(stored)"
    if dtype is torch.bfloat16:
        return "bfloatToFloat(stored)"
    return f"{compute_type(accumulator)}{LANES}(stored)" if dtype != accumulator else "stored"
