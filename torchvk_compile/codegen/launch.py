"""One launch of a kernel written by hand that nothing fuses with: a step of a sort, a bag of embeddings.

In: a Jinja shell, realized inputs, sizes. Out: a node of Inductor's graph, which becomes a `DispatchLine`.
Forbidden: knowing what the shell computes.

A kernel whose stores take a fused epilogue is a `TemplateKernel` instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from torchvk_compile.codegen.arguments import ERRORS
from torchvk_compile.codegen.costs import Cost, bytes_of_nodes
from torchvk_compile.codegen.dtypes import storage_type
from torchvk_compile.codegen.grid import grid, is_folded
from torchvk_compile.codegen.lines import BoundOperand, DispatchLine
from torchvk_compile.codegen.templates import KERNEL_NAME, render
from torchvk_compile.codegen.wrapper import DefinedKernel
from torchvk_compile.plan.graph_plan import ArgumentKind, KernelArgument, KernelSpec


@dataclasses.dataclass(frozen=True)
class Shell:
    """A kernel template and how its workgroups are made.

    Attributes:
        template: file name in `codegen_templates`. It sees ``kernel``, ``workgroup_size``, ``index_type``,
            ``folded`` (see `codegen.grid`), ``arguments`` and `values`.
        workgroup_size: invocations per workgroup.
        modules: library modules it imports.
        values: what else the template needs.
        subgroup_size: size the shell relies on, 0 if none.
        configuration: see `KernelSpec`.
    """

    template: str
    workgroup_size: int
    modules: tuple[str, ...]
    values: Mapping[str, Any]
    subgroup_size: int = 0
    configuration: str = ""


class Launch(ir.ExternKernelOut):
    """A buffer that one kernel fills.

    The shell's arguments are ``output``, the names in `inputs` and `also_written` (pointers to the first element of
    each buffer, whatever part of it an input is) and the names in `sizes`.

    Args:
        device, dtype, size: of the output.
        shell: the kernel.
        inputs: buffers by argument name; see `contiguous_input`.
        sizes: extents, strides and offsets by argument name.
        groups: number of workgroups.
        assertions: messages by the argument that holds their code; with them comes the argument ``errors``.
        stride: of the output, contiguous by default.
        also_written: further buffers that the kernel fills, by argument name (Inductor's `empty_strided`).
        flops: floating-point operations of the kernel's products, for reports.
    """

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        size: Sequence[sympy.Expr],
        shell: Shell,
        inputs: Mapping[str, ir.IRNode],
        sizes: Mapping[str, sympy.Expr],
        groups: sympy.Expr,
        assertions: Mapping[str, str] | None = None,
        stride: Sequence[sympy.Expr] | None = None,
        also_written: Mapping[str, ir.TensorBox] | None = None,
        flops: sympy.Expr = sympy.S.Zero,
    ) -> None:
        self._shell = shell
        self._assertions = dict(assertions or {})
        self._names = tuple(inputs)
        self._sizes = {name: sympy.sympify(value) for name, value in sizes.items()}
        self._groups = groups
        self._flops = flops
        self._also_written = dict(also_written or {})
        super().__init__(ir.FixedLayout(device, dtype, list(size), stride), list(inputs.values()))
        for buffer in self._also_written.values():
            self.mutation_outputs.append(
                ir.MutationOutput(ir.NoneLayout(device=device), buffer, self)
            )

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> ir.TensorBox:
        """The output as a tensor; arguments as the constructor's."""
        return ir.TensorBox.create(Launch(*args, **kwargs))

    def get_free_symbol_uses(self, unbacked_only: bool = False) -> Any:
        found = super().get_free_symbol_uses(unbacked_only)
        for value in (self._groups, *self._sizes.values()):
            found = found | ir.get_free_symbols(value, unbacked_only)
        return found

    def codegen(self, wrapper: Any) -> None:
        arguments, operands = self._arguments(wrapper)
        written = [self, *self._also_written.values()]
        source = render(
            self._shell.template,
            kernel=KERNEL_NAME,
            workgroup_size=self._shell.workgroup_size,
            index_type=self._index_type(),
            folded=is_folded(self._groups),
            arguments=arguments,
            **self._shell.values,
        )
        wrapper.writeline(
            DispatchLine(
                wrapper=wrapper,
                kernel=self._define(wrapper, source, arguments),
                groups=grid(self._groups),
                operands=operands,
                reads=tuple(dict.fromkeys(node.get_name() for node in self.inputs)),
                writes=tuple(node.get_name() for node in written),
                origins=frozenset(self.origins),
                cost=Cost(bytes_of_nodes(self.inputs), bytes_of_nodes(written), self._flops),
            )
        )

    def _define(self, wrapper: Any, source: str, arguments: tuple[KernelArgument, ...]) -> str:
        if source in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[source]
        name = f"{self._shell.template.partition('.')[0]}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[source] = name
        origin = " ".join(
            sorted(str(node.target) for node in self.origins if node.op == "call_function")
        )
        spec = KernelSpec(
            name=name,
            workgroup_size=self._shell.workgroup_size,
            subgroup_size=self._shell.subgroup_size,
            arguments=arguments,
            origin=origin,
            configuration=self._shell.configuration,
        )
        text = (f"// {origin}\n" if origin else "") + source.replace(KERNEL_NAME, name)
        wrapper.define_slang_kernel(
            DefinedKernel(spec, text, frozenset((*self._shell.modules, "torchvk_grid")))
        )
        return name

    def _arguments(
        self, wrapper: Any
    ) -> tuple[tuple[KernelArgument, ...], tuple[BoundOperand, ...]]:
        kind: ArgumentKind = "i64" if self._index_type() == "int64_t" else "i32"
        bound = [self._pointer("output", self)]
        for name, node in zip(self._names, self.inputs, strict=True):
            bound.append(self._pointer(name, node))
        for name, node in self._also_written.items():
            bound.append(self._pointer(name, node))
        for name, value in self._sizes.items():
            wrapper.ensure_size_computed(value)
            bound.append(
                (KernelArgument(name, kind, self._index_type()), BoundOperand(value=value))
            )
        if self._assertions:
            bound.append((KernelArgument(ERRORS, "pointer", "uint*"), BoundOperand(buffer=ERRORS)))
        for name, message in self._assertions.items():
            bound.append((KernelArgument(name, "i32", "int"), BoundOperand(assertion=message)))
        bound.sort(key=lambda pair: -pair[0].nbytes)
        return tuple(argument for argument, _ in bound), tuple(operand for _, operand in bound)

    def _pointer(self, name: str, node: Any) -> tuple[KernelArgument, BoundOperand]:
        slang_type = f"{storage_type(node.get_dtype())}*"
        return KernelArgument(name, "pointer", slang_type), BoundOperand(buffer=node.get_name())

    def _index_type(self) -> str:
        """``int`` where every element's byte offset fits 32 bits, which library loads rely on."""
        for node in (self, *self.inputs, *self._also_written.values()):
            nbytes = node.get_layout().storage_size() * node.get_dtype().itemsize
            if not SIMDScheduling.can_use_32bit_indexing(nbytes, []):
                return "int64_t"
        return "int"


def contiguous_input(x: Any) -> ir.IRNode:
    """`x` in memory, contiguous and from the start of its buffer; copied only where it is not."""
    if V.graph.sizevars.statically_known_equals(sympy_product(x.get_size()), 0):
        # Strides of empty tensors say nothing, and Inductor cannot change all of them.
        node = ir.ExternKernel.copy_input(x)
    else:
        node = ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(x))
    if isinstance(node, ir.TensorBox):
        node = node.data
    if isinstance(node, ir.StorageBox):
        node.freeze_layout()
        node = node.data
    layout = node.get_layout()
    whole = node.get_dtype() == V.graph.get_dtype(node.get_name())
    if not whole or not V.graph.sizevars.statically_known_equals(layout.offset, 0):
        node = ir.ExternKernel.copy_input(x).data
        node.freeze_layout()
        node = node.data
    return node
