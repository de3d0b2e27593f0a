"""What every graph for a vk device must satisfy before Inductor lowers it.

In: a functional ATen graph. Out: the same graph, or an exception of ours. Forbidden: rewriting the graph.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
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

_PRODUCTS = {
    _aten.mm.default: 2,
    _aten.bmm.default: 2,
    _aten.addmm.default: 3,
    _aten.baddbmm.default: 3,
    _aten.addbmm.default: 3,
    _aten.convolution.default: 2,
    _aten._trilinear.default: 3,
}
"""How many of the first arguments torch wants in one dtype, and not bool; its shape functions let others pass."""


class GraphCheck(CustomGraphModulePass):
    """Refuses dtypes the device cannot compute with, naming the operator.

    Its `uuid` makes Inductor's FX graph cache tell apart graphs compiled by different versions of TorchVK, for
    different devices, or under different settings.
    """

    def __call__(self, graph: torch.fx.GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.op != "call_function":
                continue
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


def check_products(graph: torch.fx.Graph) -> None:
    """Refuse the products that torch refuses on the CPU, before Inductor's passes stumble over them."""
    for target, count in _PRODUCTS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            _check_product(target, [operand.meta["val"] for operand in node.args[:count]])
    for node in graph.find_nodes(op="call_function", target=_aten.addcmul.default):
        if (
            node.meta["val"].dtype is torch.bool
        ):  # other operands are converted to the result's dtype
            _check_product(node.target, [operand.meta["val"] for operand in node.args])


@functools.cache
def checked_product(
    op: torch._ops.OpOverload, decomposition: Callable[..., torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """The decomposition of a product of vectors, for operands that torch multiplies on the CPU."""

    @functools.wraps(decomposition)
    def product(*operands: torch.Tensor, **scalars: Any) -> torch.Tensor:
        _check_product(op, operands)
        return decomposition(*operands, **scalars)

    return product


def _check_product(op: torch._ops.OpOverload, operands: Sequence[torch.Tensor]) -> None:
    if operands[-1].device.type != "vk":
        return
    dtypes = list(dict.fromkeys(operand.dtype for operand in operands))
    if torch.bool in dtypes:
        raise UnsupportedOperatorError(
            str(op), dtype=torch.bool, reason="torch has no products of boolean tensors"
        )
    if len(dtypes) > 1:
        raise DtypeMismatchError(
            f"{op}: expected operands of the same dtype, but got {' and '.join(map(str, dtypes))}. Convert one of "
            "them, or compute inside torch.autocast"
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
