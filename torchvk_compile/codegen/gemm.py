"""What the shells of matrix products must know: `gemm_tile`, `gemm_cooperative` (GPUs) and `gemm_panel` (CPU drivers).

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

from torchvk_compile.codegen.cooperative import CooperativeConfig
from torchvk_compile.codegen.dtypes import compute_type, storage_type, to_compute
from torchvk_compile.codegen.gemm_config import GemmConfig, PanelConfig, TileConfig
from torchvk_compile.codegen.grid import is_folded
from torchvk_compile.codegen.lanes import starts_aligned
from torchvk_compile.codegen.layout import LANES, WorkgroupLayout
from torchvk_compile.codegen.template_kernel import Epilogue, TemplateKernel

_PACKED = {1: "uint", 2: "uint2"}
_PACKED_EIGHT = {2: "uint4", 4: "EightFloats"}


@dataclasses.dataclass(frozen=True)
class Operand:
    """How a shell reads one operand.

    Attributes:
        pointer: name of the argument.
        storage: Slang type of an element in memory.
        scalar: an accumulator element, as a Slang expression of what memory holds, `stored`.
        packed: Slang type of a vector of stored elements in registers, see `torchvk_gemm.slang` and
            `torchvk_cooperative.slang`.
        unpack: function or type that makes accumulator elements of it; empty where it has them.
        origin: element index of the current batch's matrix.
        outer_stride: elements between neighbours along M or N.
        k_stride: elements between neighbours along K.
        run: the dimension that vectors are loaded along, ``"k"`` or ``"outer"``.
        contiguous: a vector's elements are consecutive in memory.
        aligned: and its accesses start at multiples of their length whenever the buffer is aligned.
        exact: and a vector is inside the matrix or outside, never both; and the matrix fills a tile,
            so that reading something for what is missing of the last one costs little.
        whole: tiles end where the matrix does, along M or N.
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
    whole: bool


@dataclasses.dataclass(frozen=True)
class _Shell:
    """A template with its expression for an invocation's sums, and the library modules it imports."""

    template: str
    value: str
    modules: tuple[str, ...] = ()


_SHELLS: dict[type, _Shell] = {
    PanelConfig: _Shell("gemm_panel.slang.j2", "results[i]"),
    TileConfig: _Shell("gemm_tile.slang.j2", "sums[i][j]", ("torchvk_gemm",)),
    CooperativeConfig: _Shell(
        "gemm_cooperative.slang.j2", "four", ("torchvk_cooperative", "torchvk_reduce")
    ),
}


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
        shell = _SHELLS[type(config)]
        leading = ["part"] * (config.split_k > 1) + ["batch"] * (len(a.get_size()) == 3)
        super().__init__(
            output,
            index_names=[*leading, "m", "n"],
            value=shell.value,
            accumulator=accumulator,
            epilogue=epilogue,
            template=shell.template,
            layout=_workgroup(config),
            configuration=str(config),
        )
        self._a, self._b, self._config = a, b, config
        self._constants: dict[str, int] = {}
        for module in shell.modules:
            self.require(module)

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
            "size_m": self._number("size_m", m),
            "size_n": self._number("size_n", n),
            "size_k": self._number("size_k", k),
            "size_batch": self.argument("size_batch", count) if batch else None,
            "ragged": not V.graph.sizevars.statically_known_multiple_of(k, _longest_step(config)),
            "folded": is_folded(self.groups),
            "operand_a": self._operand("a", self._a, config.block_m, outer=-2, inner=-1),
            "operand_b": self._operand("b", self._b, config.block_n, outer=-1, inner=-2),
            "constants": self._constants,
        }

    def _number(self, name: str, value: sympy.Expr) -> str:
        """A size or stride by its name: an argument, or a constant of a cooperative kernel where it is known.

        Constants gain such a kernel 5 % on an H200, other tiles less than 1 %: not worth a kernel for every size.
        """
        if isinstance(self._config, CooperativeConfig) and isinstance(value, sympy.Integer):
            self._constants[name] = int(value)
            return name
        return self.argument(name, value)

    def _operand(
        self, name: str, node: ir.IRNode, block: int, *, outer: int, inner: int
    ) -> Operand:
        layout, size, dtype = node.get_layout(), node.get_size(), node.get_dtype()
        known_multiple = V.graph.sizevars.statically_known_multiple_of
        cooperative = isinstance(self._config, CooperativeConfig)
        vector = 2 * LANES if cooperative else LANES
        # Two accesses bring eight elements of 32 bits, one brings those of 16.
        access = LANES if dtype.itemsize >= 4 else vector
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
        aligned = (
            contiguous
            and starts_aligned(node.get_name())
            and all(known_multiple(step, access) for step in steps)
        )
        packed = (
            _PACKED_EIGHT[dtype.itemsize]
            if cooperative
            else _PACKED.get(dtype.itemsize, f"vector<{storage_type(dtype)}, 4>")
        )
        origin = self.index_to_str(layout.offset)
        if batch_stride != 0:
            origin = f"batch * {self.argument(f'{name}_batch_stride', batch_stride)} + {origin}"
        return Operand(
            pointer=self.args.input(node.get_name()),
            storage=storage_type(dtype),
            scalar=f"{compute_type(self._accumulator)}({to_compute(dtype, 'stored')})",
            packed=packed,
            unpack="" if dtype.itemsize >= 4 else f"unpack{_capitalised(dtype)}",
            origin=origin,
            outer_stride="1" if unit_outer else self._number(f"{name}_outer_stride", along_outer),
            k_stride="1" if unit_k else self._number(f"{name}_k_stride", along_k),
            run=run,
            contiguous=contiguous,
            aligned=aligned,
            exact=aligned
            and known_multiple(size[inner if run == "k" else outer], vector)
            and not V.graph.sizevars.statically_known_lt(size[outer], block),
            whole=known_multiple(size[outer], block),
        )


def _workgroup(config: GemmConfig) -> WorkgroupLayout:
    if isinstance(config, PanelConfig):
        return WorkgroupLayout(
            config.subgroup, 1, 1, config.subgroup, inner=False, persistent=False
        )
    subgroup = config.fragment.lanes if isinstance(config, CooperativeConfig) else 1
    return WorkgroupLayout(config.workgroup_size, 1, LANES, subgroup, inner=False, persistent=False)


def _longest_step(config: GemmConfig) -> int:
    """K of a multiple of this many elements leaves no workgroup with a step that is partly empty."""
    return config.steps if isinstance(config, PanelConfig) else config.block_k * config.split_k


def _capitalised(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").capitalize()
