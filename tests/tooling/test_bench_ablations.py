"""Every switch of `config.without` changes what it says, and nothing about the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchvk_compile
from torchvk_compile import config
from torchvk_compile.bench.workloads.training import fresh
from torchvk_compile.plan.executor import CompiledPlan, loaded_plans

_CALLS = 12


def _mixed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Products, a softmax over rows and two products that do not depend on each other."""
    hidden = torch.relu(x @ w + 1)
    again = ((hidden @ w.t()) @ w) @ w.t()
    return again.softmax(dim=1), (x * 2).sin().sum(dim=1) - hidden.mean(), w.t() @ w


class _Compiled:
    """`_mixed` compiled without some mechanisms, and run a few times on new memory."""

    def __init__(self, without: set[str], vk: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        x, w = (torch.randn(s, generator=generator) for s in ((48, 160), (160, 32)))
        self.expected = _mixed(x, w)
        before = set(loaded_plans())
        run: Callable[..., Any] = torch.compile(fresh(_mixed), backend="torchvk", dynamic=False)
        with config.patch(without=without):
            self.found = run(x.to(vk), w.to(vk))
        kept = [(x.to(vk), w.to(vk)) for _ in range(_CALLS)]
        for inputs in kept:
            run(*inputs)
            torch.vk.synchronize()  # type: ignore[attr-defined]
        with torchvk_compile.audit() as self.audit:
            for inputs in kept:
                run(*inputs)
                torch.vk.synchronize()  # type: ignore[attr-defined]
        plans = [plan for plan in loaded_plans() if plan not in before]
        (self.plan,) = [p for p in plans if not p.plan.name.startswith("graph_")]

    def check(self) -> None:
        for found, expected in zip(self.found, self.expected, strict=True):
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def full(vk: torch.device) -> _Compiled:
    return _Compiled(set(), vk)


def _barriers(plan: CompiledPlan) -> int:
    return plan._aligned.barrier_count


def _arena_bytes(plan: CompiledPlan) -> int:
    size = plan._slots.arena_bytes()
    assert isinstance(size, int)
    return size


def _has_product_template(plan: CompiledPlan) -> bool:
    return any(a.name == "size_k" for kernel in plan.plan.kernels for a in kernel.arguments)


def test_the_full_system(full: _Compiled) -> None:
    full.check()
    assert full.plan.plan.without == ()
    assert full.audit.recordings == 0


@pytest.mark.parametrize("mechanism", config.MECHANISMS)
def test_results_stay_right(mechanism: str, full: _Compiled, vk: torch.device) -> None:
    ablated = _Compiled({mechanism}, vk)
    ablated.check()
    assert ablated.plan.plan.without == (mechanism,)
    steps, plan = len(full.plan.plan.steps), ablated.plan
    changed = {
        "fusion": lambda: len(plan.plan.steps) > steps,
        "replay": lambda: ablated.audit.recordings == _CALLS,
        "memory_planning": lambda: _arena_bytes(plan) > _arena_bytes(full.plan),
        "vectors": lambda: (
            "loadVector" in full.plan.plan.slang and "loadVector" not in plan.plan.slang
        ),
        "hazard_barriers": lambda: _barriers(plan) == steps - 1 > _barriers(full.plan) > 0,
        "gemm_templates": lambda: (
            _has_product_template(full.plan) and not _has_product_template(plan)
        ),
        "argument_table": lambda: ablated.audit.recordings > 0,
        "subgroups": lambda: (
            any(k.subgroup_size for k in full.plan.plan.kernels)
            and not any(k.subgroup_size for k in plan.plan.kernels)
        ),
    }
    assert changed[mechanism](), (mechanism, ablated.audit.recordings, len(plan.plan.steps))


def test_eager_operators_keep_everything(vk: torch.device) -> None:
    before = set(loaded_plans())
    with config.patch(without=set(config.MECHANISMS)):
        torch.ones(37, 41, device=vk).logsumexp(dim=1)
    found = [plan for plan in loaded_plans() if plan not in before]
    assert found and all(plan.plan.without == () for plan in found)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("fusion, Replay", {"fusion", "replay"}),
        ("", set()),
        (None, set()),
        (["vectors"], {"vectors"}),
    ],
)
def test_names_are_taken_as_text_or_as_a_collection(value: Any, expected: set[str]) -> None:
    with config.patch(without=value):
        assert config.without == expected


@pytest.mark.parametrize("value", ["fusion,magic", 3, [1]])
def test_unknown_mechanisms_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="without"):
        config.without = value
