"""What every graph for a vk device must satisfy before Inductor lowers it.

In: a functional ATen graph. Out: the same graph, or an exception of ours. Forbidden: rewriting the graph.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.utils._pytree import tree_leaves

from torchvk_compile import config
from torchvk_compile.codegen.device_profile import fingerprint, profile_of
from torchvk_compile.errors import DtypeMismatchError, UnsupportedOperatorError
from torchvk_compile.shaders import template_root

_NEEDED_FEATURE = {
    torch.float64: ("float64", "shaderFloat64"),
    torch.complex128: ("float64", "shaderFloat64"),
}


_aten = torch.ops.aten

_SAME_DTYPE = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _aten.convolution.default: (0, 1),
}
"""Arguments that torch wants in one dtype; its shape functions let other ones pass."""


class GraphCheck(CustomGraphModulePass):
    """Refuses dtypes the device cannot compute with, or that torch does not mix, naming the operator.

    Its `uuid` makes Inductor's FX graph cache tell apart graphs compiled by different versions of TorchVK, for
    different devices, or under different settings.
    """

    def __call__(self, graph: torch.fx.GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.op != "call_function":
                continue
            if node.target in _SAME_DTYPE:
                _check_operands(node, _SAME_DTYPE[node.target])
            for value in _tensors(node.meta.get("val")):
                if value.device.type == "vk":
                    _check_dtype(node, value)

    def uuid(self) -> Any:
        devices = tuple(fingerprint(index) for index in range(torch.vk.device_count()))  # type: ignore[attr-defined]
        return (
            source_digest(),
            devices,
            config.cpu_fallback,
            config.winograd,
            sorted(config.without),
        )


def refuse_products(graph: torch.fx.Graph) -> None:
    """Refuse products of boolean matrices, which torch has on no device, before Inductor's passes stumble over them."""
    for target, (position, _) in _SAME_DTYPE.items():
        for node in graph.find_nodes(op="call_function", target=target):
            value = node.args[position].meta["val"]
            if value.device.type == "vk" and value.dtype is torch.bool:
                raise UnsupportedOperatorError(
                    str(target), dtype=torch.bool, reason="torch multiplies no boolean matrices"
                )


def _check_operands(node: torch.fx.Node, positions: tuple[int, int]) -> None:
    one, other = (_tensors(node.args[at].meta.get("val")) for at in positions)  # type: ignore[union-attr]
    if one and other and one[0].device.type == "vk" and one[0].dtype is not other[0].dtype:
        raise DtypeMismatchError(
            f"{node.target}: expected operands of the same dtype, but got {one[0].dtype} and "
            f"{other[0].dtype}. Convert one of them, or compute inside torch.autocast"
        )


def _check_dtype(node: torch.fx.Node, value: torch.Tensor) -> None:
    needed = _NEEDED_FEATURE.get(value.dtype)
    if needed is None:
        return
    attribute, feature = needed
    profile = profile_of(value.device.index or 0)
    if not getattr(profile, attribute):
        raise UnsupportedOperatorError(
            str(node.target),
            dtype=value.dtype,
            shape=tuple(value.shape),
            reason=f"{profile.name} has no {feature}",
        )


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def source_digest() -> str:
    """Digest of everything that decides what code is generated: this package and the templates."""
    global _digest
    if _digest is None:
        digest = hashlib.sha256()
        package = Path(__file__).parents[1]
        for root, pattern in (
            (package, "**/*.py"),
            (template_root(), "**/*.j2"),
            (template_root(), "**/*.slang"),
        ):
            for path in sorted(root.glob(pattern)):
                digest.update(path.read_bytes())
        _digest = digest.hexdigest()
    return _digest


_digest: str | None = None
