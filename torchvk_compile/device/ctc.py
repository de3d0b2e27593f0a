"""ctc_loss as ATen calls it, with the lengths on the host.

In: vk tensors, lists of lengths. Out: vk tensors. Forbidden: computing on the host anything but where targets begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchvk_compile.errors import UnsupportedOperatorError

_NAME = "aten._ctc_loss.default"


def _loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = _checked(log_probs, targets, input_lengths, target_lengths, blank)
    return torch.ops.torchvk.ctc_loss.default(log_probs, *lengths, blank)


def _gradient(
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    loss: torch.Tensor,
    log_alpha: torch.Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> torch.Tensor:
    lengths = _checked(log_probs, targets, input_lengths, target_lengths, blank)
    return torch.ops.torchvk.ctc_loss_backward.default(
        grad, log_probs, *lengths, loss, log_alpha, blank, zero_infinity
    )


def _with_listed_lengths(function: Callable[..., Any], first: int) -> Callable[..., Any]:
    """`function` for lengths that are tensors, at the positions `first` and the one after it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        listed = [lengths.tolist() for lengths in args[first : first + 2]]
        return function(*args[:first], *listed, *args[first + 2 :], **kwargs)

    return call


def _checked(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Targets as (sequences, longest) and both lengths, on the device, as int64.

    Raises:
        RuntimeError: lengths or the blank do not fit the tensors.
        UnsupportedOperatorError: a target is too long for the kernel.
    """
    from torchvk_compile.codegen.ctc_lattice import longest_lattice
    from torchvk_compile.lowering import ctc  # noqa: F401  (defines the operators)

    times, sequences, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: the blank {blank} is not one of the {classes} classes")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if len(lengths) != sequences:
            raise RuntimeError(
                f"ctc_loss: {name} must have size {sequences}, the batch, but has {len(lengths)}"
            )
    if any(not 0 <= length <= times for length in input_lengths):
        raise RuntimeError(f"ctc_loss: input_lengths must lie between 0 and {times}")
    longest = max(target_lengths, default=0)
    room = (
        targets.shape[1] if targets.dim() == 2 else targets.shape[0] - sum(target_lengths) + longest
    )
    if any(length < 0 for length in target_lengths) or longest > room:
        raise RuntimeError(
            f"ctc_loss: target_lengths do not fit targets of shape {list(targets.shape)}"
        )
    if 2 * longest + 1 > longest_lattice(log_probs.dtype):
        limit = (longest_lattice(log_probs.dtype) - 1) // 2
        raise UnsupportedOperatorError(
            _NAME,
            dtype=log_probs.dtype,
            shape=tuple(log_probs.shape),
            reason=f"targets of more than {limit} labels do not fit the kernel's shared memory",
        )
    device = log_probs.device
    targets = targets.to(device=device, dtype=torch.int64)
    if targets.dim() == 1:
        starts = torch.tensor([0, *target_lengths[:-1]]).cumsum(0)
        places = starts.unsqueeze(1) + torch.arange(longest)
        # What is behind the end of a target does not count.
        targets = targets[places.clamp_max(max(targets.shape[0] - 1, 0)).to(device)]
    sizes = [torch.tensor(list(lengths)).to(device) for lengths in (input_lengths, target_lengths)]
    return targets[:, :longest], sizes[0], sizes[1]


KERNELS: dict[str, Callable[..., Any]] = {
    "_ctc_loss": _loss,
    "_ctc_loss.Tensor": _with_listed_lengths(_loss, 2),
    "_ctc_loss_backward": _gradient,
    "_ctc_loss_backward.Tensor": _with_listed_lengths(_gradient, 3),
}
"""ATen kernels of this file."""
