"""The benchmark's own arithmetic: what is interleaved, what counts as an error, who loses."""

from __future__ import annotations

import torch
from figures import clock, report
from figures.case import Case, Place, Work, forward_and_backward
from figures.clock import Contestant, Times, interleaved
from figures.sides import OURS
from kernels import _error
from pytest import MonkeyPatch


def test_contestants_take_turns(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "BUSY_SECONDS", 0.0)
    monkeypatch.setattr(clock, "_BATCH_SECONDS", 0.0)
    order: list[str] = []

    def contestant(name: str) -> Contestant:
        return Contestant(lambda: order.append(name), lambda: None)

    times = interleaved({"a": contestant("a"), "b": contestant("b")}, rounds=3)
    assert "".join(order).endswith("ababab")
    assert [len(t.samples) for t in times.values()] == [3, 3]


def test_quartiles_and_median() -> None:
    times = Times((3.0, 1.0, 2.0, 5.0, 4.0))
    assert (times.median, times.quartiles) == (3.0, (2.0, 4.0))


def test_nan_is_an_infinite_error() -> None:
    expected = [torch.tensor([1.0, -4.0])]
    assert _error([torch.tensor([1.0, -3.0])], expected) == 0.25
    assert _error([torch.tensor([float("nan"), -4.0])], expected) == float("inf")


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
