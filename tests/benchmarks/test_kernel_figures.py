"""The benchmark's own arithmetic: what is interleaved, what counts as an error, who loses."""

from __future__ import annotations

import pytest
import torch
from figures import clock, report
from figures.apart import PartyApart
from figures.case import Case, Place, Work, forward_and_backward
from figures.clock import Times, interleaved
from figures.party import Party, largest_error
from figures.sides import OURS, torchvk
from figures.subjects import cases
from pytest import MonkeyPatch


def test_contestants_take_turns(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "BUSY_SECONDS", 0.0)
    monkeypatch.setattr(clock, "_BATCH_SECONDS", 0.0)
    order: list[str] = []

    def contestant(name: str) -> clock.Contestant:
        def run(runs: int) -> float:
            order.append(name)
            return 1.0 * runs

        return run

    times = interleaved({"a": contestant("a"), "b": contestant("b")}, rounds=3)
    assert "".join(order).endswith("ababab")
    assert [t.samples for t in times.values()] == [(1.0,) * 3] * 2


@pytest.mark.long
def test_peers_of_another_process_know_no_vk(vk: torch.device) -> None:
    (case, *_) = cases(False, "softmax")
    apart = PartyApart(full=False)
    try:
        apart.start(case)
        ours = Party([torchvk(vk)], apart.error)
        ours.start(case)
        assert ours.enter(OURS) <= case.tolerance
        (name, *_) = apart.names(case)
        assert apart.enter(name) <= case.tolerance
        assert apart.sample(name, 2) > 0 and ours.sample(OURS, 2) > 0
        with pytest.raises(RuntimeError, match="KeyError"):
            apart.enter("nobody")
        apart.finish()
    finally:
        apart.close()


def test_quartiles_and_median() -> None:
    times = Times((3.0, 1.0, 2.0, 5.0, 4.0))
    assert (times.median, times.quartiles) == (3.0, (2.0, 4.0))


def test_nan_is_an_infinitelargest_error() -> None:
    expected = [torch.tensor([1.0, -4.0])]
    assert largest_error([torch.tensor([1.0, -3.0])], expected) == 0.25
    assert largest_error([torch.tensor([float("nan"), -4.0])], expected) == float("inf")


def test_a_loss_is_a_ratio_above_one_to_the_best_peer() -> None:
    case = Case("group", "name", lambda place: lambda: None, Work(), 0.0)
    times = {OURS: Times((2.0,)), "slow": Times((4.0,)), "fast": Times((1.0,))}
    result = report.Result(case, times=times)
    assert (result.best_peer, result.ratio) == ("fast", 2.0)
    assert report.Result(case, times={OURS: Times((2.0,))}).ratio is None


def test_backward_programs_return_every_gradient() -> None:
    place = Place(torch.device("cpu"), lambda function: function, wide=True)
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    program = forward_and_backward(lambda a, b: (a * b).sum(), lambda: [a, b])(place)
    result, of_a, of_b = program()
    assert result.dtype is torch.float64
    assert (result.item(), of_a.tolist(), of_b.tolist()) == (11.0, [3.0, 4.0], [1.0, 2.0])
