"""The plan of the experiments: the committed one is what it says, and a damaged one is refused by place."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchvk_compile.bench import command
from torchvk_compile.bench.experiments import EXPERIMENTS
from torchvk_compile.bench.plan import MODES, load_plan, parse_plan, plan_path
from torchvk_compile.bench.verdicts import MEASURES
from torchvk_compile.errors import CorruptDataError, UsageError


def _text() -> str:
    return plan_path().read_text(encoding="utf-8")


def test_the_repository_s_plan_is_the_committed_one() -> None:
    plan = load_plan()
    assert plan.is_committed, f"plan.COMMITTED_SHA256 must be {plan.sha256}, or the plan restored"
    assert list(plan.experiments) == list(EXPERIMENTS) == ["E1", "E2", "E3", "E4", "E5", "E6"]


def test_every_criterion_has_a_measure() -> None:
    for experiment in load_plan().experiments.values():
        for criterion in experiment.criteria:
            assert criterion.measure in MEASURES, (experiment.key, criterion.name)


def test_both_modes_have_the_settings_of_every_experiment() -> None:
    for experiment in load_plan().experiments.values():
        for mode in MODES:
            assert experiment.settings[mode]["rounds"] >= 3


def test_line_ends_of_a_checkout_do_not_make_another_plan() -> None:
    data = _text().encode()
    assert parse_plan(data.replace(b"\n", b"\r\n")).is_committed


def test_a_changed_bound_makes_another_plan() -> None:
    changed = _text().replace("at_least = 0.7", "at_least = 0.1", 1)
    assert not parse_plan(changed.encode()).is_committed


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("version = 1", "version = 7", "version must be 1"),
        ("rounds = 21", "rounds = 0", r"experiments.E1.full.rounds: expected a positive number"),
        ('title = "Vector addition"', 'title = ""', "experiments.E1.title: expected a text"),
        ("at_most = 1e-6", "at_most = 1e-6\nat_least = 0", "exactly one of at_least, at_most"),
        ('only = ["discrete"]', 'only = ["quantum"]', "expected some of discrete"),
        ("[experiments.E1.quick]", "[experiments.E1.fast]", "experiments.E1.quick: expected a"),
        ("[method]", "[method", "not a TOML file"),
    ],
)
def test_a_damaged_plan_is_refused_by_place(old: str, new: str, complaint: str) -> None:
    text = _text()
    assert old in text
    with pytest.raises(CorruptDataError, match=complaint):
        parse_plan(text.replace(old, new, 1).encode())


def test_a_missing_plan_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the plan"):
        load_plan(tmp_path / "nowhere.toml")


def test_experiments_are_chosen_in_the_plan_s_order() -> None:
    assert command.chosen_experiments(load_plan(), ("e3", "E1")) == ["E1", "E3"]
    with pytest.raises(UsageError, match=r"no experiment 'E9'; there is E1 \(Vector addition\)"):
        command.chosen_experiments(load_plan(), ("E9",))
