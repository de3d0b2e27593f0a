"""Registering TorchVK's lowerings with Inductor.

In: the lowerings of this room. Out: entries in Inductor's table that act for vk tensors only. Forbidden: any change for
other devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import ir
from torch.utils._pytree import tree_leaves


def register_lowerings() -> None:
    """Add TorchVK's lowerings to Inductor's table; called once."""
    from torchvk_compile.lowering.any import register_any
    from torchvk_compile.lowering.arithmetic import register_arithmetic
    from torchvk_compile.lowering.attention import register_attention
    from torchvk_compile.lowering.complex_products import register_running
    from torchvk_compile.lowering.convolution import register_convolution
    from torchvk_compile.lowering.ctc import register_ctc
    from torchvk_compile.lowering.distances import register_distances
    from torchvk_compile.lowering.embedding import register_embeddings
    from torchvk_compile.lowering.extrema import register_extrema
    from torchvk_compile.lowering.fourier import register_fourier
    from torchvk_compile.lowering.grid_sampling import register_grid_sampling
    from torchvk_compile.lowering.hashing import register_hashing
    from torchvk_compile.lowering.histogram import register_histograms
    from torchvk_compile.lowering.interleave import register_interleave
    from torchvk_compile.lowering.jumps import register_jumps
    from torchvk_compile.lowering.linalg import register_linalg
    from torchvk_compile.lowering.margin_loss import register_margin_loss
    from torchvk_compile.lowering.matmul import register_matmul
    from torchvk_compile.lowering.padding import register_padding
    from torchvk_compile.lowering.pooling import register_pooling
    from torchvk_compile.lowering.resampling import register_resampling
    from torchvk_compile.lowering.roundings import register_roundings
    from torchvk_compile.lowering.sampling import register_sampling
    from torchvk_compile.lowering.scan import register_scans
    from torchvk_compile.lowering.scatter import register_scatters
    from torchvk_compile.lowering.searches import register_searches
    from torchvk_compile.lowering.segments import register_segments
    from torchvk_compile.lowering.selection import register_selections
    from torchvk_compile.lowering.sort import register_sorts
    from torchvk_compile.lowering.trilinear import register_trilinear
    from torchvk_compile.lowering.variance import register_variances
    from torchvk_compile.lowering.windows import register_windows

    register_any()
    register_roundings()
    register_arithmetic()
    register_extrema()
    register_jumps()
    register_matmul()
    register_attention()
    register_trilinear()
    register_variances()
    register_distances()
    register_ctc()
    register_margin_loss()
    register_convolution()
    register_windows()
    register_pooling()
    register_padding()
    register_resampling()
    register_grid_sampling()
    register_scans()
    register_sorts()
    register_scatters()
    register_selections()
    register_searches()
    register_segments()
    register_embeddings()
    register_histograms()
    register_hashing()
    register_sampling()
    register_linalg()
    register_interleave()
    register_running()
    register_fourier()


def route(overload: torch._ops.OpOverload, lowering: Callable[..., Any]) -> None:
    """Lower `overload` by `lowering` when an argument is a vk tensor, and as before for every other device.

    Args:
        overload: the ATen operator.
        lowering: takes the operator's arguments, tensors as Inductor's IR.
    """
    from torch._inductor.lowering import lowerings

    previous = lowerings.get(overload)

    @functools.wraps(lowering)
    def choose(*args: Any, **kwargs: Any) -> Any:
        if previous is None or _on_vk((args, kwargs)):
            return lowering(*args, **kwargs)
        return previous(*args, **kwargs)

    lowerings[overload] = choose


def _on_vk(arguments: Any) -> bool:
    for value in tree_leaves(arguments):
        # A factory has no tensor, but says where its result goes.
        if isinstance(value, (ir.IRNode, torch.device)):
            device = value if isinstance(value, torch.device) else value.get_device()
            if device is not None and device.type == "vk":
                return True
    return False
