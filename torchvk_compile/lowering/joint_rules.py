"""TorchVK's changes to a graph before Inductor's passes and the partitioner see it.

In: a functional ATen graph, forward and backward in one. Out: the same graph, rewritten, or a refusal. Forbidden:
rewriting what a lowering could handle.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

from torchvk_compile import torch_compat
from torchvk_compile.lowering.accumulations import keep_accumulations
from torchvk_compile.lowering.complex_graph import apply_rules
from torchvk_compile.lowering.graph_check import check_products, source_digest
from torchvk_compile.lowering.known_lengths import index_by_places
from torchvk_compile.lowering.roundings import hide_roundings


class JointRules(CustomGraphPass):
    """Complex numbers by real ones, selections of known length without a look at the data, sums in float32."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        check_products(graph)
        index_by_places(graph)
        apply_rules(graph)
        keep_accumulations(graph)
        if not torch_compat.joint_passes_round():
            hide_roundings(graph)

    def uuid(self) -> Any:
        return source_digest()
