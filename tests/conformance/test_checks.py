"""The suite itself: it sees what is wrong, and keeps what it has seen.

In: results made by hand. Out: tests. Forbidden: a device.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from . import draws, factorizations, order, report
from .cases import Case, Selection, entries, select
from .comparison import Measure, Mismatch, compare
from .free_choice import Call
from .placement import place
from .records import Direction, Result, ResultFile, Verdict
from .tolerances import NOTHING_MORE, Allowed, Tolerance, overrides

_CASE = Case("op", "add", "float32", "eager")


def _matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "actual",
    [
        torch.tensor([1.0, 2.001]),
        torch.tensor([1.0, float("nan")]),
        torch.tensor([1.0, 2.0], dtype=torch.float64),
        torch.tensor([[1.0, 2.0]]),
        [torch.tensor([1.0, 2.0])],
        None,
    ],
)
def test_other_results_are_wrong(actual: Any) -> None:
    with pytest.raises(Mismatch):
        compare(actual, torch.tensor([1.0, 2.0]), NOTHING_MORE)


def test_rounding_is_right() -> None:
    compare(torch.tensor([1.0 + 1e-6]), torch.tensor([1.0]), NOTHING_MORE)


def test_elements_may_be_as_far_from_the_exact_ones_as_the_expected_ones_are() -> None:
    expected = torch.tensor([1.0, 2.0], dtype=torch.float16)
    exact = torch.tensor([1.0, 2.05], dtype=torch.float64)
    for near in ([1.0, 2.05], [1.0, 2.0996], [1.02, 2.05]):
        actual = torch.tensor(near, dtype=torch.float16)
        assert compare(actual, expected, NOTHING_MORE, lambda: exact) is Measure.EXACT
    # The second expected element is off by 0.05, 24 units of its tolerance; a unit of the first is 0.001.
    for wrong in ([1.0, 2.11], [1.03, 2.05], [float("nan"), 2.05]):
        with pytest.raises(Mismatch):
            compare(torch.tensor(wrong).half(), expected, NOTHING_MORE, lambda: exact)


def test_a_number_where_the_expected_result_has_none_must_be_the_exact_one() -> None:
    expected, exact = torch.tensor([float("nan"), 2.0]), torch.tensor([1.0, 2.0]).double()
    assert compare(exact.float(), expected, NOTHING_MORE, lambda: exact) is Measure.EXACT
    for wrong in (1.1, float("inf")):
        with pytest.raises(Mismatch):
            compare(torch.tensor([wrong, 2.0]), expected, NOTHING_MORE, lambda: exact)
    # 70000 is infinite in float16.
    half, large = expected.half(), torch.tensor([7e4, 2.0]).double()
    assert compare(large.half(), half, NOTHING_MORE, lambda: large) is Measure.EXACT


def test_a_tolerance_of_other_tests_is_the_last_measure() -> None:
    expected, actual = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001])
    allowed = Allowed(NOTHING_MORE.usual, Tolerance(0.0, 0.01))
    assert compare(actual, expected, allowed) is Measure.ELSEWHERE
    assert compare(expected, expected, allowed) is Measure.USUAL
    with pytest.raises(Mismatch):
        compare(actual + 0.1, expected, allowed)


def test_tolerances_are_those_the_database_names_for_cuda() -> None:
    info = entries("op")["nn_functional_conv_transpose3d"]
    narrow, half = overrides(info, torch.float32), overrides(info, torch.float16)
    assert narrow.usual == NOTHING_MORE.usual
    assert 0 < narrow.elsewhere.atol <= 1e-4
    assert half.usual.rtol > 0


def test_integers_are_compared_exactly() -> None:
    with pytest.raises(Mismatch):
        compare(torch.tensor([10**6 + 1]), torch.tensor([10**6]), NOTHING_MORE)


def test_an_index_of_a_tie_is_free_and_others_are_not() -> None:
    values = torch.tensor([3.0, 1.0, 1.0])
    call = Call("sort", values, (), {})
    expected = values.sort()
    order.check_sort(call, expected, (expected[0], torch.tensor([2, 1, 0])))
    for indices in ([1, 0, 2], [1, 1, 0], [1, 2, 3]):
        with pytest.raises(Mismatch):
            order.check_sort(call, expected, (expected[0], torch.tensor(indices)))


def test_a_stable_sort_leaves_no_choice() -> None:
    values = torch.tensor([1.0, 1.0])
    call = Call("sort", values, (), {"stable": True})
    with pytest.raises(Mismatch):
        order.check_sort(call, values.sort(), (values, torch.tensor([1, 0])))


@pytest.mark.parametrize(
    ("name", "function", "check", "flipped"),
    [
        ("linalg_svd", torch.linalg.svd, factorizations.check_svd, (0, 2)),
        ("linalg_qr", torch.linalg.qr, factorizations.check_qr, (0, 1)),
        ("linalg_eigh", torch.linalg.eigh, factorizations.check_eigh, (1,)),
    ],
)
def test_signs_of_factors_are_free(
    name: str, function: Callable[..., Any], check: Callable[..., None], flipped: tuple[int, ...]
) -> None:
    matrix = _matrix(4, 4)
    matrix = matrix + matrix.T
    expected = function(matrix)
    actual = [-part if i in flipped else part for i, part in enumerate(expected)]
    check(Call(name, matrix, (), {}), expected, actual)
    actual[flipped[-1]] = actual[flipped[-1]].flip(0)
    with pytest.raises(Mismatch):
        check(Call(name, matrix, (), {}), expected, actual)


def test_eigenvalues_come_in_any_order() -> None:
    expected = torch.linalg.eigvals(_matrix(4, 4))
    call = Call("linalg_eigvals", _matrix(4, 4), (), {})
    factorizations.check_eigvals(call, expected, expected.flip(0))
    with pytest.raises(Mismatch):
        factorizations.check_eigvals(call, expected, expected + 1)
    cotangents = [torch.arange(4.0), torch.arange(16.0).reshape(4, 4)]
    results = [expected.flip(0), torch.zeros(4, 4)]
    own = factorizations.in_eigenvalue_order("linalg_eig", results, [expected], cotangents)
    assert all(torch.equal(c, other.flip(-1)) for c, other in zip(own, cotangents, strict=True))


def test_dropout_scales_what_it_keeps() -> None:
    call = Call("nn_functional_dropout", torch.ones(4), (), {"p": 0.5})
    draws.check_dropout(call, torch.ones(4), torch.tensor([0.0, 2.0, 2.0, 0.0]))
    with pytest.raises(Mismatch):
        draws.check_dropout(call, torch.ones(4), torch.tensor([0.0, 1.0, 2.0, 0.0]))


def test_a_generator_of_another_distribution_is_wrong() -> None:
    cpu = torch.device("cpu")
    draws.check_population("rand", lambda device: torch.rand(4096), cpu)
    generators = iter([torch.rand(4096), *[torch.rand(4096) * 1.2 for _ in range(3)]])
    with pytest.raises(Mismatch):
        draws.check_population("rand", lambda device: next(generators), cpu)


def test_a_population_may_be_rounded_differently() -> None:
    values = torch.tensor([-1.3, 0.8], dtype=torch.float16)
    drawn = values[torch.arange(4096) % 2]
    moved = torch.nextafter(drawn, torch.zeros_like(drawn))
    populations = iter([drawn, moved, moved.roll(1), moved])
    draws.check_population("alpha_dropout", lambda device: next(populations), torch.device("cpu"))


def test_a_copy_keeps_strides_and_shared_memory() -> None:
    base = torch.arange(6.0)
    copies = place([base, base[1::2], {"device": "cpu"}], torch.device("cpu"))
    copies[0].zero_()
    assert copies[1].tolist() == [0.0, 0.0, 0.0]
    assert copies[1].stride() == (2,)
    assert base[1] == 1.0


def test_results_survive_a_line_cut_short(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "results.jsonl")
    direction = Direction()
    direction.add(Verdict.REFUSED, "why")
    file.append([Result(_CASE, direction, None, 1.0)])
    with file.path.open("a") as stream:
        stream.write('{"case": "op:add:float')
    assert file.read()[_CASE.key].worst is Verdict.REFUSED


def test_the_worst_sample_decides() -> None:
    direction = Direction()
    for verdict in (Verdict.PASS, Verdict.WRONG, Verdict.REFUSED):
        direction.add(verdict, verdict.value)
    assert (direction.verdict, direction.detail) == (Verdict.WRONG, "wrong")
    results = [Result(_CASE, direction, Direction(), 1.0)]
    assert report.summary_line(results) == ("conformance: 1 pass, 0 refused, 1 wrong, 0 crash")


def test_shards_are_a_partition() -> None:
    whole = select(Selection(databases=("op",), dtypes=("bool",), modes=("eager",)))
    parts = [
        select(Selection(databases=("op",), dtypes=("bool",), modes=("eager",), shard=(i, 3)))
        for i in (1, 2, 3)
    ]
    assert sorted(case.key for part in parts for case in part) == sorted(c.key for c in whole)
    assert all(parts)


def test_a_gradient_may_go_to_any_of_equal_elements() -> None:
    call = Call("sort", torch.tensor([2.0, 1.0, 1.0]), (), {})
    expected = [torch.tensor([5.0, 3.0, 4.0])]
    order.check_tied_gradients(call, expected, [torch.tensor([5.0, 4.0, 3.0])])
    with pytest.raises(Mismatch):
        order.check_tied_gradients(call, expected, [torch.tensor([4.0, 5.0, 3.0])])
