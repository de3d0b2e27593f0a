"""ctc_loss: padded and concatenated targets, lengths of all kinds, impossible targets, both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Check = Callable[..., None]

TIMES, CLASSES = 12, 6
INPUT_LENGTHS = [12, 9, 5, 0, 12]
TARGET_LENGTHS = [4, 5, 0, 0, 1]


def _inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(TIMES, len(INPUT_LENGTHS), CLASSES, generator=generator).to(dtype)
    targets = torch.randint(1, CLASSES, (len(INPUT_LENGTHS), 5), generator=generator)
    targets[1] = torch.tensor([2, 2, 3, 3, 3])  # repeated labels need a blank between them
    return scores.requires_grad_(), targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padded_targets(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        log_probs = scores.log_softmax(2)
        return F.ctc_loss(log_probs, targets, INPUT_LENGTHS, TARGET_LENGTHS, reduction="none")

    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    assert_close_like_cpu(
        loss, *_inputs(dtype), compiled=dtype is torch.float32, rtol=tolerance, atol=tolerance
    )


def test_concatenated_targets_and_lengths_in_tensors(assert_close_like_cpu: Check) -> None:
    def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        given, wanted = torch.tensor(INPUT_LENGTHS), torch.tensor(TARGET_LENGTHS)
        return F.ctc_loss(scores.log_softmax(2), targets, given, wanted, blank=2)

    scores, _ = _inputs(torch.float32)
    targets = torch.tensor([0, 1, 3, 3, 4, 5, 1, 0, 0, 1])
    assert_close_like_cpu(loss, scores, targets, compiled=False, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_longer_than_the_input(assert_close_like_cpu: Check, zero_infinity: bool) -> None:
    def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        log_probs = scores.log_softmax(2)
        return F.ctc_loss(
            log_probs, targets, [2, 9, 5, 7, 12], [5, 5, 1, 2, 3], zero_infinity=zero_infinity
        )

    assert_close_like_cpu(loss, *_inputs(torch.float32), compiled=False, rtol=1e-5, atol=1e-5)


def test_lengths_that_do_not_fit(vk: torch.device) -> None:
    scores, targets = (x.detach().to(vk) for x in _inputs(torch.float32))
    for given, wanted in (([12] * 4, [1] * 5), ([13] * 5, [1] * 5), ([12] * 5, [6] * 5)):
        with pytest.raises(RuntimeError, match=r"ctc_loss|length"):
            F.ctc_loss(scores, targets, given, wanted)
