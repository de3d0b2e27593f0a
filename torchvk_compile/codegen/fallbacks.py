"""Operators that Inductor would hand back to eager: refused on a vk device, unless eager has a kernel of its own
for them, or CPU fallbacks are allowed.

In: Inductor's extern kernel nodes. Out: nothing, or `UnsupportedOperatorError`. Forbidden: running anything.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import ir

from torchvk_compile import config
from torchvk_compile.errors import UnsupportedOperatorError

EAGER_KERNELS = frozenset(
    (
        *("aten.nonzero.default", "aten.masked_select.default"),
        *("aten.index.Tensor", "aten.index_put_.default"),
        *("aten._unique.default", "aten._unique2.default", "aten.unique_dim.default"),
        *("aten.unique_consecutive.default", "aten.unique_dim_consecutive.default"),
        *("aten.bincount.default", "aten.repeat_interleave.Tensor"),
        *("aten.histogram.bin_ct", "aten.histogram.bins_tensor"),
        *("aten._histogramdd_bin_edges.default", "aten._histogramdd_from_bin_cts.default"),
        "aten._histogramdd_from_bin_tensors.default",
        # Written in Python by torch, as a loop over chunks of the batch.
        "torch_nn._linear_cross_entropy_batch_chunked.default",
        "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default",
    )
)
"""Operators that eager runs on the device in several steps, since the host has to learn a size between them."""

HOST_CHECKS = frozenset(["aten._linalg_check_errors.default"])
"""Operators that read a result of the device and raise where it tells of a failure."""


def refuse_without_kernel(node: ir.ExternKernel) -> None:
    """Refuse an operator that no kernel of ours computes.

    Under ``config.cpu_fallback`` "warn" or "allow" the operator stays in the graph as an eager call, where the device
    counts it and runs it on the CPU. An eager operator that is itself being compiled is always refused: its caller
    decides about the fallback.

    Raises:
        UnsupportedOperatorError: naming the operator, the dtype and the shape of its first tensor.
    """
    from torchvk_compile.backend import compiling_eager_operator

    tensors = _tensors(node)
    if not any(device == "vk" for device, _, _ in tensors):
        return
    overload = node.op_overload
    name = str(overload) if overload is not None else node.get_kernel_name()
    if name in HOST_CHECKS:
        return
    allowed = name in EAGER_KERNELS or config.cpu_fallback != "error"
    if allowed and not compiling_eager_operator():
        return
    _, dtype, shape = tensors[0]
    raise UnsupportedOperatorError(name, dtype=dtype, shape=shape)


def _tensors(node: ir.ExternKernel) -> list[tuple[str, torch.dtype, list[Any]]]:
    found = []
    for value in (*node.inputs, node):
        layout = value.maybe_get_layout() if isinstance(value, ir.IRNode) else None
        if isinstance(layout, ir.Layout):
            found.append((layout.device.type, layout.dtype, list(layout.size)))
    return found
