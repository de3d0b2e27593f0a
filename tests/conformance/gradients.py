"""Gradients of results with respect to a call's arguments.

In: results, arguments. Out: cotangents that are the same on every device, gradients. Forbidden:
summing outputs, which hides errors that cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .comparison import Mismatch
from .placement import tensors_in


def cotangents_for(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fixed random cotangents on the CPU, one for each output, in its dtype."""
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randn(
            output.shape,
            generator=generator,
            dtype=torch.complex64 if output.is_complex() else torch.float32,
        ).to(output.dtype)
        for output in outputs
    ]


def gradients_of(
    outputs: Sequence[torch.Tensor], arguments: Any, cotangents: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Gradients of the leaves in `arguments`, in order; None where no output depends on one."""
    leaves = [tensor for tensor in tensors_in(arguments) if tensor.requires_grad]
    return list(torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True))


def on_device_of(
    outputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The cotangents, each where its output is."""
    return [c.to(o.device) for c, o in zip(cotangents, outputs, strict=True)]


def differentiable_in(results: Any) -> list[torch.Tensor]:
    """The tensors in `results` that require gradients, in order."""
    return [tensor for tensor in tensors_in([results]) if tensor.requires_grad]


def require_same_form(results: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Raise `Mismatch` unless both have the same shapes and dtypes."""
    forms = [[(tuple(t.shape), t.dtype) for t in tensors] for tensors in (results, outputs)]
    if forms[0] != forms[1]:
        raise Mismatch(f"differentiable results {forms[0]}, expected {forms[1]}")
