"""mode="max-autotune": measured choices are right, remembered, and never worse than the default."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F

import torchvk_compile
from torchvk_compile import cache, config
from torchvk_compile.errors import DeviceLostError, VulkanError
from torchvk_compile.plan.executor import loaded_plans
from torchvk_compile.tuning import choice, trial
from torchvk_compile.tuning.problem import Problem
from torchvk_compile.tuning.trial import Times


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Two candidates, no memory, and no graph from torch's caches."""
    monkeypatch.setattr(choice, "_known", {})
    monkeypatch.setattr(choice, "MOST_CANDIDATES", 2)
    with config.patch(cache_dir=tmp_path), inductor_config.patch(force_disable_caches=True):
        yield


def configurations(since: list[Any]) -> set[str]:
    """Of the templates in plans that were loaded since."""
    found = (k.configuration for p in loaded_plans() if p not in since for k in p.plan.kernels)
    return {configuration for configuration in found if configuration}


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def product(vk: torch.device, k: int = 20, **settings: Any) -> torch.Tensor:
    """A product that has to be compiled anew."""
    torch._dynamo.reset()
    compiled = torch.compile(_product, backend="torchvk", dynamic=False, **settings)
    a, b = torch.ones(24, k, device=vk), torch.ones(k, 18, device=vk)
    result = compiled(a, b)
    assert torch.equal(result.cpu(), torch.full((24, 18), float(k)))
    return result


def pretend(
    monkeypatch: pytest.MonkeyPatch, times: Callable[[Sequence[Any]], dict[Any, Times]]
) -> list[Problem]:
    """Have candidates' times made up; returns the problems that are asked for."""
    asked: list[Problem] = []

    def measure(problem: Problem, candidates: Sequence[Any]) -> dict[Any, Times]:
        asked.append(problem)
        return times(candidates)

    monkeypatch.setattr(trial, "measure", measure)
    return asked


def second_is_faster(candidates: Sequence[Any]) -> dict[Any, Times]:
    return {c: Times((10.0 / (i + 1),) * 5) for i, c in enumerate(candidates)}


def test_the_default_wins_ties_within_the_spread() -> None:
    steady, noisy = Times((9.8, 9.9, 10.0, 10.1, 10.2)), Times((8.0, 9.0, 9.7, 10.0, 12.0))
    assert choice.fastest({"default": steady, "other": noisy}, "default") == "default"
    assert choice.fastest({"default": noisy, "other": steady}, "default") == "default"
    faster = Times((8.0, 8.1, 8.2, 8.3, 9.9))
    assert choice.fastest({"default": steady, "other": faster}, "default") == "other"
    given_up = Times((1.0, 1.0), in_reach=False)
    assert choice.fastest({"default": steady, "other": given_up}, "default") == "default"
    assert choice.fastest({"other": noisy}, "default") == "other", "the default failed"
    assert choice.fastest({}, "default") == "default"


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "max-autotune"},
        {"mode": "max-autotune-no-cudagraphs"},
        {"options": {"max_autotune": True}},
    ],
    ids=str,
)
def test_candidates_are_measured_on_the_device(
    vk: torch.device, caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    with config.patch(log="tuning"), caplog.at_level(logging.INFO, "torchvk.tuning"):
        product(vk, **settings)
    (message,) = (r.message for r in caplog.records if r.name == "torchvk.tuning")
    assert "aten.mm.default(float32[24, 20], float32[20, 18])" in message
    assert "of 2 candidates" in message and " us" in message


def test_nothing_is_measured_by_default(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, second_is_faster)
    product(vk)
    product(vk, options={"max_autotune": False})
    assert not asked
    with pytest.raises(Exception, match="\"max-autotune\", not 'reduce-overhead'"):
        product(vk, mode="reduce-overhead")


def test_reports_show_the_choice(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> str:
        with torchvk_compile.profile() as profile:
            product(vk, mode="max-autotune")
        # The graph ran once, candidates run more often.
        (configuration,) = (k.configuration for k in profile.kernels if k.calls == 1 and k.places)
        assert f"({configuration})" in profile.report(width=300)
        return configuration

    default = run()
    choice._known.clear()
    with config.patch(cache_dir=config.cache_dir / "other"):
        pretend(monkeypatch, second_is_faster)
        assert run() != default


def test_choices_are_remembered(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, second_is_faster)
    product(vk, mode="max-autotune")
    (path,) = (config.cache_dir / "tuning").glob("*/*")
    record = json.loads(cache.read("tuning", path.name) or b"")
    assert record["choice"] == list(record["median_ns"])[1]
    for _ in range(2):  # from this process's memory, then from the disk
        product(vk, mode="max-autotune")
        choice._known.clear()
    assert len(asked) == 1
    product(vk, 36, mode="max-autotune")
    assert len(asked) == 2, "another problem"


@pytest.mark.parametrize("damage", ["bytes", "record"])
def test_damaged_choices_are_made_again(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    asked = pretend(monkeypatch, second_is_faster)
    product(vk, mode="max-autotune")
    (path,) = (config.cache_dir / "tuning").glob("*/*")
    whole = path.read_bytes()
    if damage == "bytes":
        path.write_bytes(whole[:-3])
    else:
        cache.write("tuning", path.name, b'["of another version"]')
    choice._known.clear()
    product(vk, mode="max-autotune")
    assert len(asked) == 2
    assert path.read_bytes() == whole


def test_a_candidate_that_fails_is_left_out(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = trial._compiled
    failed: list[Any] = []

    def fails_first(problem: Problem, inputs: Any, candidate: Any) -> Any:
        if not failed:
            failed.append(candidate)
            raise VulkanError("vkCreateComputePipelines: the compiler crashed\nand more")
        return compiled(problem, inputs, candidate)

    monkeypatch.setattr(trial, "_compiled", fails_first)
    before = loaded_plans()
    with caplog.at_level(logging.WARNING, "torchvk.tuning"):
        product(vk, mode="max-autotune")
    (message,) = (r.message for r in caplog.records if r.name == "torchvk.tuning")
    assert f"{failed[0]} is left out (VulkanError: vkCreate" in message and "\n" not in message
    assert str(failed[0]) not in configurations(before)


def test_a_lost_device_is_not_a_failed_candidate(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> Any:
        raise DeviceLostError("gone")

    monkeypatch.setattr(trial, "_compiled", lost)
    with pytest.raises(Exception, match="DeviceLostError: gone"):
        product(vk, mode="max-autotune")


def test_measuring_leaves_the_random_state_alone(vk: torch.device) -> None:
    torch.manual_seed(5)
    states = torch.get_rng_state(), torch.vk.get_rng_state()  # type: ignore[attr-defined]
    product(vk, mode="max-autotune")
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(torch.vk.get_rng_state(), states[1])  # type: ignore[attr-defined]


def test_every_template_has_candidates(vk: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of all kinds, convolutions and attention, forward and backward, with other tiles than the default."""
    monkeypatch.setattr(choice, "fastest", lambda times, _: list(times)[-1])
    measured: list[str] = []
    measure = trial.measure

    def noted(problem: Problem, candidates: Sequence[Any]) -> dict[Any, Times]:
        measured.append(problem.operator.name().removeprefix("aten::"))
        times = measure(problem, candidates)
        assert len(times) == 2, problem
        return times

    monkeypatch.setattr(trial, "measure", noted)

    def model(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        image = F.conv2d(x, w, bias, padding=1)
        tokens = image.flatten(2).mT.reshape(2, -1, 2, 4).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(tokens, tokens, tokens)
        flat = mixed.reshape(2, -1, 8)
        row = flat[0, :1]
        return (
            torch.addmm(bias, row, flat[1].T @ flat[1], alpha=0.5).sum()
            + torch.baddbmm(bias, flat, w[:, :, 0, 0].expand(2, 8, 8)).sum()
        )

    def gradients(device: torch.device | str, **settings: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        inputs = torch.randn(2, 8, 5, 5), torch.randn(8, 8, 3, 3), torch.randn(8)
        leaves = [x.to(device).requires_grad_() for x in inputs]
        function = torch.compile(model, **settings) if settings else model
        function(*leaves).backward()
        return [leaf.grad.cpu() for leaf in leaves]

    found = gradients(vk, backend="torchvk", mode="max-autotune", dynamic=False)
    for own, expected in zip(found, gradients("cpu"), strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-5 * expected.abs().max().item())
    for operator in ("convolution", "convolution_backward", "addmm", "mm", "baddbmm", "bmm"):
        assert operator in measured
    assert sum(operator.startswith("torchvk::attention") for operator in measured) == 3


def test_other_dtypes_strides_and_dynamic_sizes(vk: torch.device) -> None:
    def products(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.half() @ b.half().T, torch._int_mm(c, c.T), torch.addbmm(a, a[None], b.T[None])

    compiled = torch.compile(products, backend="torchvk", mode="max-autotune", dynamic=True)
    for n in (24, 40):
        a, b = torch.randn(n, n), torch.randn(n, n)
        c = torch.randint(-9, 9, (n, n), dtype=torch.int8)
        for own, expected in zip(compiled(a.to(vk), b.to(vk), c.to(vk)), products(a, b, c)):
            torch.testing.assert_close(own.cpu(), expected, rtol=1e-2, atol=2e-2)
