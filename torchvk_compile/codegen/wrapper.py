"""The Python module that Inductor writes for a graph: arguments in, plans called, tensors out.

In: wrapper lines in execution order. Out: Python source whose device work is all in plans. Forbidden: kernel bodies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sympy
from torch._inductor import ir
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.virtualized import V

from torchvk_compile.codegen.costs import Cost, bytes_of_nodes
from torchvk_compile.codegen.device_profile import fingerprint
from torchvk_compile.codegen.fallbacks import refuse_without_kernel
from torchvk_compile.codegen.lines import BoundOperand, DispatchLine
from torchvk_compile.codegen.segments import gather_plans, sole_call
from torchvk_compile.codegen.templates import KERNEL_NAME, render
from torchvk_compile.plan.executor import ALIGNED_LINE
from torchvk_compile.plan.graph_plan import GraphPlan, KernelArgument, KernelSpec

_SEED_SOURCE = "next_seed({device})"


@dataclasses.dataclass(frozen=True)
class KernelPart:
    """A kernel as a function that combined kernels call: its name, its source, the type of its workgroup index."""

    function: str
    source: str
    index_type: str


@dataclasses.dataclass(frozen=True)
class DefinedKernel:
    """A kernel of the graph's module.

    Attributes:
        spec: what the runtime must know.
        source: of the entry point.
        modules: what the source imports.
        part: the kernel as a part of a combined one, where it can be that.
        calls: parts that the source calls.
    """

    spec: KernelSpec
    source: str
    modules: frozenset[str]
    part: KernelPart | None = None
    calls: tuple[KernelPart, ...] = ()


class PlanWrapperCodegen(PythonWrapperCodegen):
    """Turns allocations, kernel launches and frees into `GraphPlan`s.

    What is left in Python is what the host has to do: unpack arguments, call plans, make views, return.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slang_kernels: dict[str, DefinedKernel] = {}

    @classmethod
    def create(
        cls,
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: ir.GraphPartitionSignature | None = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            assert subgraph_name is not None and parent_wrapper is not None
            arguments = (subgraph_name, parent_wrapper, partition_signatures)
            return SubgraphPlanWrapperCodegen(*arguments)  # type: ignore[call-arg]
        return cls()

    @property
    def plan_prefix(self) -> str:
        """What the names of this graph's plans begin with; unique in the module."""
        return "plan"

    def write_header(self) -> None:
        super().write_header()
        self.imports.splice(
            """
            from torchvk_compile.device.random import next_seed
            from torchvk_compile.plan.executor import CompiledPlan, SolePlan
            """,
            strip=True,
        )

    # Streams and device guards have no meaning here: a plan knows its device.

    def codegen_device_guard_enter(self, device_idx: int, *args: Any, **kwargs: Any) -> None:
        pass

    def codegen_device_guard_exit(self) -> None:
        pass

    def write_get_raw_stream(self, device_idx: int, graph_name: str) -> str:
        return ""

    def write_get_raw_stream_header(self) -> None:
        pass

    # Kernels -----------------------------------------------------------------------------------------------

    def define_slang_kernel(self, kernel: DefinedKernel) -> None:
        """Add an entry point to the graph's Slang module."""
        self.slang_kernels[kernel.spec.name] = kernel

    def generate_extern_kernel_out(self, node: ir.ExternKernelOut) -> None:
        if isinstance(node, ir.RandomSeeds):
            self._generate_seeds(node)
        else:
            refuse_without_kernel(node)
            super().generate_extern_kernel_out(node)

    def generate_extern_kernel_alloc(self, node: ir.ExternKernelAlloc) -> None:
        refuse_without_kernel(node)
        super().generate_extern_kernel_alloc(node)

    def generate_fallback_kernel(self, node: ir.FallbackKernel) -> None:
        refuse_without_kernel(node)
        super().generate_fallback_kernel(node)

    def generate_scatter_fallback(self, node: ir.ScatterFallback) -> None:
        refuse_without_kernel(node)
        super().generate_scatter_fallback(node)

    def generate_index_put_fallback(self, node: ir.IndexPutFallback) -> None:
        refuse_without_kernel(node)
        super().generate_index_put_fallback(node)

    def _generate_seeds(self, node: ir.RandomSeeds) -> None:
        """Fill a buffer with seeds that follow from one number drawn from the device's generator."""
        name = "random_seeds"
        arguments = (
            KernelArgument("seeds", "pointer", "int64_t*"),
            KernelArgument("base", "i64", "int64_t"),
            KernelArgument("count", "i32", "int"),
        )
        if name not in self.slang_kernels:
            source = render("seeds.slang.j2", kernel=KERNEL_NAME, arguments=arguments).replace(
                KERNEL_NAME, name
            )
            spec = KernelSpec(name, 64, 0, arguments, origin="seeds of random numbers")
            self.define_slang_kernel(DefinedKernel(spec, source, frozenset(["torchvk_random"])))
        (count,) = node.get_size()
        device = node.get_device()
        seed = _SEED_SOURCE.format(device=device.index or 0 if device is not None else 0)
        self.writeline(
            DispatchLine(
                wrapper=self,
                kernel=name,
                groups=(sympy.Integer(1), sympy.Integer(1), sympy.Integer(1)),
                operands=(
                    BoundOperand(buffer=node.get_name()),
                    BoundOperand(scalar=(seed, "int64")),
                    BoundOperand(value=count),
                ),
                reads=(),
                writes=(node.get_name(),),
                origins=frozenset(node.origins),
                cost=Cost(written_bytes=bytes_of_nodes([node])),
            )
        )

    # Plans -------------------------------------------------------------------------------------------------

    def run_wrapper_ir_passes(self, is_inference: bool) -> None:
        super().run_wrapper_ir_passes(is_inference)
        self.lines, plans = gather_plans(self)
        for variable, plan in plans.items():
            self._write_plan(variable, plan)
        self._write_sole_plan()

    def slang_module(self, name: str, kernels: list[str]) -> str:
        """Source of the module with these entry points."""
        defined = [self.slang_kernels[kernel] for kernel in kernels]
        modules = sorted(frozenset().union(*(kernel.modules for kernel in defined)))
        parts = dict.fromkeys(part for kernel in defined for part in kernel.calls)
        return render(
            "module.slang.j2",
            name=name,
            modules=modules,
            aligned_line=ALIGNED_LINE,
            parts=[part.source for part in parts],
            kernels=[kernel.source for kernel in defined],
        )

    def _write_plan(self, variable: str, plan: GraphPlan) -> None:
        device = V.graph.get_current_device_or_throw().index or 0
        assert plan.fingerprint == fingerprint(device)
        text = IndentedBuffer()
        text.writeline(f"{variable} = CompiledPlan.load(")
        text.writeline(f"    slang={_literal(plan.slang)},")
        text.writeline(f"    plan={_literal(plan.to_json())},")
        text.writeline(f"    device_index={device},")
        text.writeline(")")
        self.header.splice(text)

    def _write_sole_plan(self) -> None:
        """Say so in the module if its function does nothing but call one plan."""
        call = sole_call(self.lines)
        if call is None:
            return
        arguments = list(self.get_graph_input_names())
        extents = _extents([V.graph.graph_inputs[name] for name in arguments])
        places: dict[str, list[Any]] = {
            "inputs": [_index(arguments, name) for name in call.inputs],
            "symbols": [extents.get(symbol) for symbol in call.symbols],
            "scalars": [_index(arguments, expression) for expression in call.scalars],
            "outputs": [
                _index(call.outputs, _buffer_name(node)) for node in self.get_graph_outputs()
            ],
        }
        if all(None not in found for found in places.values()):
            text = ", ".join(f"{name}={tuple(found)}" for name, found in places.items())
            self.header.writeline(f"SOLE_PLAN = SolePlan({call.plan}, {text})")


class SubgraphPlanWrapperCodegen(SubgraphPythonWrapperCodegen, PlanWrapperCodegen):
    """A branch or loop body of a graph: a function of its own in the graph's module, with its own plans."""

    @property
    def plan_prefix(self) -> str:
        return f"{self.subgraph_name}_plan"

    def _write_sole_plan(self) -> None:
        pass  # the module's function is not this one


def _extents(inputs: list[Any]) -> dict[str, tuple[int, int]]:
    """For every symbol that is an extent of an input, which input and dimension."""
    return {
        str(extent): (position, dimension)
        for position, value in enumerate(inputs)
        if isinstance(value, ir.TensorBox)
        for dimension, extent in enumerate(value.get_size())
    }


def _index(names: Sequence[str], name: str | None) -> int | None:
    return names.index(name) if name in names else None


def _buffer_name(node: ir.IRNode) -> str | None:
    """Name of a result that is a buffer as it is; None for a view, a constant or nothing."""
    while isinstance(node, ir.MutableBox):
        node = node.data
    return node.get_name() if isinstance(node, ir.Buffer) else None


def _literal(text: str) -> str:
    """A raw multi-line literal where the text allows it, so that the shader can be read in the output code."""
    if "'''" in text or text.endswith("\\") or "\\" in text:
        return repr(text)
    return f"r'''{text}'''"
