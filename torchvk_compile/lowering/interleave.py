"""`torchvk::interleave`: two real tensors as one tensor of pairs, the memory layout of complex numbers.

In: real and imaginary parts. Out: an operator, and its lowering. Forbidden: complex dtypes.

`aten.stack` would do, but Inductor may lower it as one loop over all numbers that computes both parts for each of them.
Here the parts are two stores into one buffer, fused into one loop over the pairs.
"""

from __future__ import annotations

from typing import Any

import torch

from torchvk_compile import torch_compat

_library = torch.library.Library("torchvk", "FRAGMENT")
_library.define("interleave(Tensor real, Tensor imag) -> Tensor")


def interleave(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    """A new tensor [*shape, 2] of two tensors of one shape and dtype, its pairs in memory in the order of `real`."""
    return torch.ops.torchvk.interleave.default(real, imag)


def _empty(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    strides = [2 * stride for stride in torch.empty_like(real, device="meta").stride()]
    return real.new_empty_strided([*real.shape, 2], [*strides, 1])


def _interleave(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    pairs = _empty(real, imag)
    pairs.select(-1, 0).copy_(real)
    pairs.select(-1, 1).copy_(imag)
    return pairs


_library.impl("interleave", _empty, "Meta")
_library.impl("interleave", _interleave, "CPU")


def _lower(real: Any, imag: Any) -> Any:
    from torch._inductor.lowering import permute, unsqueeze
    from torch._inductor.virtualized import V

    hint = V.graph.sizevars.optimization_hint
    strides = [hint(s, fallback=1) for s in V.graph.current_node.meta["val"].stride()[:-1]]
    order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
    columns = [unsqueeze(permute(part, order), -1) for part in (real, imag)]
    pairs = torch_compat.concatenated(columns, dim=len(order))
    back = [order.index(dim) for dim in range(len(order))]
    return permute(pairs, [*back, len(order)])


def register_interleave() -> None:
    """Lower the operator on vk tensors."""
    from torchvk_compile.lowering.registry import route

    route(torch.ops.torchvk.interleave.default, _lower)
