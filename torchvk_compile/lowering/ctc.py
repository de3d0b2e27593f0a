"""Connectionist temporal classification: the loss of all alignments, and its gradient.

In: log probabilities, padded targets, lengths. Out: operators ``torchvk::ctc…`` and their lowerings.
Forbidden: reading lengths on the host.

Source: Graves, Fernández, Gomez and Schmidhuber, "Connectionist Temporal Classification", ICML 2006, equations 6 to 16.
A target of S labels becomes 2 S + 1 positions, with a blank before, between and after the labels. Everything stays in
logarithms but the last step: the probabilities of the positions given the target, which are at most 1.
"""

from __future__ import annotations

import torch

from torchvk_compile.codegen.ctc_lattice import lattice
from torchvk_compile.lowering.decomposed import route_decomposition

_NOTHING = -torch.inf

_library = torch.library.Library("torchvk", "FRAGMENT")
_library.define("ctc_lattice(Tensor emissions, Tensor skips) -> Tensor")
_library.define(
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
    "-> (Tensor, Tensor)"
)
_library.define(
    "ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "Tensor loss, Tensor log_alpha, int blank, bool zero_infinity) -> Tensor"
)


def _same_form(emissions: torch.Tensor, skips: torch.Tensor) -> torch.Tensor:
    return torch.empty(emissions.shape, dtype=emissions.dtype, device=emissions.device)


def _loss_form(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    times, sequences, _ = log_probs.shape
    positions = 2 * targets.shape[1] + 1
    return log_probs.new_empty((sequences,)), log_probs.new_empty((sequences, times, positions))


def _gradient_form(grad: torch.Tensor, log_probs: torch.Tensor, *rest: object) -> torch.Tensor:
    return log_probs.new_empty(log_probs.shape)


_library.impl("ctc_lattice", _same_form, "Meta")
_library.impl("ctc_loss", _loss_form, "Meta")
_library.impl("ctc_loss_backward", _gradient_form, "Meta")


def register_ctc() -> None:
    """Lower the operators on vk tensors."""
    from torchvk_compile.lowering.registry import route

    route(torch.ops.torchvk.ctc_lattice.default, lattice)
    route_decomposition(torch.ops.torchvk.ctc_loss.default, _loss)
    route_decomposition(torch.ops.torchvk.ctc_loss_backward.default, _gradient)


def _labels(targets: torch.Tensor, target_lengths: torch.Tensor, blank: int) -> torch.Tensor:
    """(sequences, positions): the label of every position; blanks where a target is over."""
    number = torch.arange(targets.shape[1], device=targets.device)
    targets = torch.where(number < target_lengths.unsqueeze(1), targets, blank)
    blanks = torch.full_like(targets, blank)
    pairs = torch.stack([blanks, targets], 2).reshape(targets.shape[0], 2 * targets.shape[1])
    last = torch.full((targets.shape[0], 1), blank, dtype=targets.dtype, device=targets.device)
    return torch.cat([pairs, last], 1)


def _skips(labels: torch.Tensor, blank: int) -> torch.Tensor:
    """Whether a way may leave out the blank before a position: labels that are not repeated."""
    other = labels[:, 2:] != labels[:, :-2]
    none = torch.zeros((labels.shape[0], 2), dtype=torch.bool, device=labels.device)
    return torch.cat([none, other], 1)[:, : labels.shape[1]] & (labels != blank)


def _emissions(
    log_probs: torch.Tensor, labels: torch.Tensor, target_lengths: torch.Tensor
) -> torch.Tensor:
    """(sequences, times, positions): log probabilities of the positions' labels, none beyond the target's end."""
    times, sequences, _ = log_probs.shape
    position = torch.arange(labels.shape[1], device=labels.device)
    index = labels.unsqueeze(1).expand(sequences, times, labels.shape[1])
    chosen = log_probs.permute(1, 0, 2).gather(2, index)
    inside = position <= 2 * target_lengths.unsqueeze(1)
    return torch.where(inside.unsqueeze(1), chosen, _NOTHING)


def _loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    labels = _labels(targets, target_lengths, blank)
    emissions = _emissions(log_probs, labels, target_lengths)
    alpha = torch.ops.torchvk.ctc_lattice.default(emissions, _skips(labels, blank))
    sequences, _, positions = alpha.shape
    final = (input_lengths - 1).clamp_min(0).reshape(sequences, 1, 1)
    ends = alpha.gather(1, final.expand(sequences, 1, positions)).squeeze(1)
    last = 2 * target_lengths.unsqueeze(1)
    with_blank = ends.gather(1, last).squeeze(1)
    with_label = ends.gather(1, (last - 1).clamp_min(0)).squeeze(1)
    with_label = torch.where(target_lengths > 0, with_label, _NOTHING)
    loss = -torch.logaddexp(with_blank, with_label)
    of_nothing = torch.where(target_lengths > 0, torch.inf, 0.0).to(loss.dtype)
    return torch.where(input_lengths > 0, loss, of_nothing), alpha


def _gradient(
    grad: torch.Tensor,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    loss: torch.Tensor,
    log_alpha: torch.Tensor,
    blank: int,
    zero_infinity: bool,
) -> torch.Tensor:
    labels = _labels(targets, target_lengths, blank)
    emissions = _emissions(log_probs, labels, target_lengths)
    sequences, times, positions = emissions.shape
    # The backward recursion is the forward one on the sequence and the target read from their ends.
    time = torch.arange(times, device=labels.device)
    position = torch.arange(positions, device=labels.device)
    from_end = input_lengths.unsqueeze(1) - 1 - time
    opposite = 2 * target_lengths.unsqueeze(1) - position
    inside = (from_end >= 0).unsqueeze(2) & (opposite >= 0).unsqueeze(1)
    from_end = from_end.clamp_min(0).unsqueeze(2).expand(sequences, times, positions)
    mirrored = opposite.clamp_min(0)
    opposite = mirrored.unsqueeze(1).expand(sequences, times, positions)

    def turned(values: torch.Tensor) -> torch.Tensor:
        return torch.where(inside, values.gather(1, from_end).gather(2, opposite), _NOTHING)

    skips = _skips(labels.gather(1, mirrored), blank)
    beta = turned(torch.ops.torchvk.ctc_lattice.default(turned(emissions), skips))
    # Both recursions count the probability of the position itself. A way is somewhere at every time: dividing by
    # the sum over positions, and not by the loss, leaves out the rounding that they share.
    possible = inside & (log_alpha > _NOTHING) & (beta > _NOTHING)
    ways = torch.where(possible, log_alpha + beta - emissions, _NOTHING)
    share = torch.where(possible, ways.softmax(2), 0.0)
    index = labels.unsqueeze(1).expand(sequences, times, positions)
    shape = (sequences, times, log_probs.shape[2])
    shares = torch.zeros(shape, dtype=share.dtype, device=share.device).scatter_add(2, index, share)
    result = (log_probs.permute(1, 0, 2).exp() - shares) * grad.reshape(sequences, 1, 1)
    impossible = (loss == torch.inf).reshape(sequences, 1, 1)
    result = torch.where(impossible, 0.0 if zero_infinity else torch.nan, result)
    running = (time < input_lengths.unsqueeze(1)).unsqueeze(2)
    return torch.where(running, result, 0.0).permute(1, 0, 2).contiguous()
