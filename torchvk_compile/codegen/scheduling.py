"""The vk device's place in Inductor's scheduler.

In: groups of fused nodes. Out: kernels in the wrapper. Forbidden: changing what Inductor decided to fuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torchvk_compile.codegen import column_sums
from torchvk_compile.codegen.kernel import SlangKernel
from torchvk_compile.codegen.templates import KERNEL_NAME
from torchvk_compile.codegen.wrapper import DefinedKernel, KernelPart
from torchvk_compile.plan.graph_plan import KernelSpec

_LONGEST_NAME = 80


class VulkanScheduling(SIMDScheduling):
    """Groups of loop nodes become `SlangKernel`s."""

    kernel_type = SlangKernel

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._sums: Sequence[Any] = []
        """Sums over rows that the kernel to be generated next may take along."""
        self._generated: OrderedSet[str] = OrderedSet()
        """Operations that share a kernel with others and come before them in the schedule."""

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        """What Inductor may ask of generated kernels."""
        return OrderedSet(
            [
                BackendFeature.BUCKETIZE,
                BackendFeature.INPLACE_BUFFERS,
                BackendFeature.MASKED_SCATTER_WITH_INDEX,
                BackendFeature.SCAN,
                BackendFeature.TUPLE_REDUCTION,
                BackendFeature.TRITON_TEMPLATES,
            ]
        )

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        """As Inductor decides, if an epilogue's ranges can be told from the number of a template's elements.

        That fails where sizes are minima of symbols, whose quotients do not simplify.
        """
        if node1.is_template():
            _, (numel, _) = node1.group
            for node in node2.get_nodes():
                if not self.kernel_type.is_compatible((numel,), node.get_ranges()):
                    return False
        return super().can_fuse_vertical(node1, node2)

    def codegen_node(self, node: Any) -> None:
        """Generate a kernel for a group, or one for two of which one sums the rows that the other reduces."""
        if node.get_operation_names() <= self._generated:
            return
        pair = column_sums.partners(self.scheduler, node, self._generated)
        if pair is None:
            super().codegen_node(node)
            return
        rows, sums = pair
        self._sums = sums.get_nodes()
        super().codegen_node(rows)
        self._generated |= rows.get_operation_names()
        if self._sums:  # the kernel could not take them along
            self._sums = []
            if node is sums:
                super().codegen_node(sums)
        else:
            self._generated |= sums.get_operation_names()

    def create_kernel_choices(self, *args: Any, **kwargs: Any) -> list[SlangKernel]:
        """Kernels for a schedule, told how many sums over their rows may follow."""
        kernels: list[SlangKernel] = super().create_kernel_choices(*args, **kwargs)
        for kernel in kernels:
            kernel.expected_sums = len(self._sums)
        return kernels

    def codegen_node_schedule_with_kernel(
        self, node_schedule: list[Any], kernel: SlangKernel
    ) -> None:
        """Write the kernel's body, with the sums over its rows that were found for it."""
        super().codegen_node_schedule_with_kernel(node_schedule, kernel)
        if not self._sums:
            return
        with kernel:
            if not kernel.take_column_sums(self._sums):
                return
            for node in self._sums:
                node.mark_run()
        node_schedule.extend(self._sums)
        self._sums = []

    def codegen_template(
        self,
        template_node: Any,
        epilogue_nodes: Sequence[Any],
        prologue_nodes: Sequence[Any],
        *,
        only_gen_src_code: bool = False,
        hint_override: int | None = None,
    ) -> str | None:
        """Generate a template's kernel with its fused epilogue nodes, and its dispatch.

        Returns:
            The source if `only_gen_src_code`, which then stays out of the wrapper.
        """
        assert not prologue_nodes, "templates here read their inputs themselves"
        kernel, _ = template_node.node.make_kernel_render(template_node.node)
        source = kernel.codegen_template(epilogue_nodes)
        if only_gen_src_code:
            return source
        nodes = [template_node, *epilogue_nodes]
        with V.set_kernel_handler(kernel):
            for node in nodes:
                node.mark_run()
        kernel.kernel_name = self.define_kernel(source, nodes, kernel)
        self.codegen_comment(nodes, kernel.kernel_name)
        kernel.call_kernel(kernel.kernel_name, template_node.node)
        V.graph.removed_buffers |= kernel.removed_buffers
        V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
        self.free_buffers_in_scheduler()
        return None

    def define_kernel(self, src_code: str, node_schedule: Sequence[Any], kernel: Any) -> str:
        """Add a kernel to the graph's module, or find the one that has the same source.

        Returns:
            The entry point's name.
        """
        wrapper = V.graph.wrapper_code
        nodes = [node for node in node_schedule if hasattr(node, "node")]
        kernel.attribute_to(nodes)
        if src_code in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[src_code]
        ops = get_fused_kernel_name(nodes, "original_aten").removeprefix("fused_")
        name = f"{_identifier(ops)}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[src_code] = name
        origins, _ = get_kernel_metadata(nodes, wrapper)
        origin = " ".join(origins.replace("#", " ").split())
        wrapper.define_slang_kernel(
            DefinedKernel(
                spec=KernelSpec(
                    name=name,
                    workgroup_size=kernel.layout.workgroup_size,
                    subgroup_size=kernel.layout.subgroup if kernel.layout.subgroup > 1 else 0,
                    arguments=kernel.collector.arguments(),
                    origin=origin,
                    configuration=kernel.configuration,
                ),
                source=_comment(origin) + src_code.replace(KERNEL_NAME, name),
                modules=frozenset(kernel.modules),
                part=_part(kernel, name),
            )
        )
        return name

    def codegen_sync(self) -> None:
        """Plans order themselves; nothing waits inside a graph."""


def _part(kernel: SlangKernel, name: str) -> KernelPart | None:
    if kernel.part is None:
        return None
    function = f"{name}_part"
    return KernelPart(function, kernel.part.replace(KERNEL_NAME, function), kernel.index_dtype)


def _identifier(text: str) -> str:
    cleaned = "".join(c if c.isalnum() or c == "_" else "_" for c in text).strip("_")
    if len(cleaned) > _LONGEST_NAME:
        cleaned = cleaned[:_LONGEST_NAME].rstrip("_") + "_etc"
    return cleaned or "kernel"


def _comment(text: str) -> str:
    """The text as Slang comment lines of at most 110 columns."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) + 1 > 107:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "".join(f"// {line}\n" for line in [*lines, line] if line)
