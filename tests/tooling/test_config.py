"""Settings: typed, validated, from assignments or the environment, and documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchvk_compile import config


def test_environment_is_read_when_the_setting_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHVK_CPU_FALLBACK", "Warn")
    assert config.cpu_fallback == "warn"
    monkeypatch.delenv("TORCHVK_CPU_FALLBACK")
    assert config.cpu_fallback == "error"


def test_assignment_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHVK_CPU_FALLBACK", "warn")
    config.cpu_fallback = "allow"
    try:
        assert config.cpu_fallback == "allow"
    finally:
        del config.cpu_fallback
    assert config.cpu_fallback == "warn"


def test_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHVK_CPU_FALLBACK", "never")
    with pytest.raises(ValueError, match=r"TORCHVK_CPU_FALLBACK: 'never'.*error, warn, allow"):
        _ = config.cpu_fallback


@pytest.mark.parametrize("use", ["read", "assign", "delete", "patch"])
def test_unknown_name_is_refused_with_the_nearest(use: str) -> None:
    with pytest.raises(AttributeError, match="did you mean 'cpu_fallback'"):
        if use == "read":
            _ = config.cpu_falback
        elif use == "assign":
            config.cpu_falback = "warn"
        elif use == "delete":
            del config.cpu_falback
        else:
            with config.patch(cpu_falback="warn"):
                pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_fallback", True),
        ("cpu_fallback", "sometimes"),
        ("validation", "perhaps"),
        ("dump_shaders", 3),
        ("device", 1.5),
        ("log", "loud"),
    ],
)
def test_invalid_value_is_refused_and_changes_nothing(name: str, value: object) -> None:
    before = getattr(config, name)
    with pytest.raises(ValueError, match=rf"torchvk_compile.config.{name}: "):
        setattr(config, name, value)
    assert getattr(config, name) == before


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("validation", "1", True),
        ("validation", "off", False),
        ("dump_shaders", "there", Path("there")),
        ("dump_shaders", "", None),
        ("device", 1, "1"),
        ("device", "navi", "navi"),
    ],
)
def test_values_are_converted(name: str, value: object, expected: object) -> None:
    with config.patch(**{name: value}):
        assert getattr(config, name) == expected


def test_patch_restores_also_after_an_exception() -> None:
    with pytest.raises(RuntimeError), config.patch(cpu_fallback="allow", validation=True):
        assert (config.cpu_fallback, config.validation) == ("allow", True)
        raise RuntimeError
    assert config.cpu_fallback == "error"


def test_patch_checks_everything_before_it_changes_anything() -> None:
    with (
        pytest.raises(ValueError, match="validation"),
        config.patch(cpu_fallback="allow", validation="?"),
    ):
        pass
    assert config.cpu_fallback == "error"


def test_misspelt_variables_are_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHVK_CPU_FALBACK", "warn")
    with pytest.warns(UserWarning, match="did you mean TORCHVK_CPU_FALLBACK"):
        config.warn_about_unknown_variables()


def documented_rows() -> list[list[str]]:
    """Cells of the tables of docs/configuration.md that are to say what config.py says."""
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    compared = page.read_text(encoding="utf-8").split("<!--")[1]
    lines = [line for line in compared.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_documentation_has_every_setting_and_no_other() -> None:
    def default(value: object) -> str:
        if value is None or value == frozenset():
            return "none"
        return f"`{int(value) if isinstance(value, bool) else value}`"

    settings = [
        [f"`{s.name}`", f"`{s.variable}`", default(s.default), s.values, s.meaning]
        for s in config.SETTINGS.values()
    ]
    names = [
        [f"`{name}`", text]
        for name, text in [*config.ARTIFACTS.items(), *config.MECHANISMS.items()]
    ]
    assert documented_rows() == settings + names
    assert set(config.to_dict()) == set(config.SETTINGS)


def test_patch_takes_a_mapping_and_decorates() -> None:
    with config.patch({"cpu_fallback": "warn"}, validation=True):
        assert (config.cpu_fallback, config.validation) == ("warn", True)

    @config.patch(cpu_fallback="allow")
    def decorated() -> str:
        return config.cpu_fallback

    assert (decorated(), config.cpu_fallback) == ("allow", "error")
