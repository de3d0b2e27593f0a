"""Barriers are where a hazard is, and nowhere else."""

from __future__ import annotations

from torchvk_compile.plan.graph_plan import Dispatch
from torchvk_compile.plan.hazards import barriers


def _step(reads: str, writes: str) -> Dispatch:
    return Dispatch("kernel", (1, 1, 1), (), tuple(reads), tuple(writes))


def _apart(one: str, other: str) -> bool:
    return False


def test_independent_steps_do_not_wait() -> None:
    assert barriers([_step("a", "b"), _step("a", "c"), _step("d", "e")], _apart) == [
        False,
        False,
        False,
    ]


def test_reading_what_was_written_waits() -> None:
    assert barriers([_step("a", "b"), _step("b", "c")], _apart) == [False, True]


def test_writing_what_was_read_or_written_waits() -> None:
    assert barriers([_step("a", "b"), _step("c", "a")], _apart) == [False, True]
    assert barriers([_step("a", "b"), _step("c", "b")], _apart) == [False, True]


def test_one_barrier_serves_all_earlier_steps() -> None:
    steps = [_step("a", "b"), _step("a", "c"), _step("b", "d"), _step("c", "e")]
    assert barriers(steps, _apart) == [False, False, True, False]


def test_buffers_on_the_same_bytes_are_one_resource() -> None:
    def same(one: str, other: str) -> bool:
        return {one, other} == {"b", "d"}

    assert barriers([_step("a", "b"), _step("c", "d")], same) == [False, True]
