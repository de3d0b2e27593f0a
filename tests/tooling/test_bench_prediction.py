"""The roofline: each bound where it should bind, and RDNA loops found in their ISA."""

from __future__ import annotations

from typing import Any

import pytest

from torchvk_compile.bench.forecast import Check, predicted_cases, typical_error
from torchvk_compile.bench.plan import load_plan
from torchvk_compile.bench.prediction import (
    ARITHMETIC_SHARE,
    BANDWIDTH_SHARE,
    DISPATCH_SECONDS,
    limit_of,
    predict,
)
from torchvk_compile.bench.work import has_loop
from torchvk_compile.cards import H200, RX_5600_XT, card_of


def _kernel(moved: int, flops: int, workgroups: int = 10_000, **more: Any) -> dict[str, Any]:
    return {
        "plan": "graph0_plan0",
        "read_bytes": moved,
        "written_bytes": 0,
        "flops": flops,
        "workgroups": workgroups,
        "workgroup_size": 256,
        **more,
    }


def test_streaming_is_bound_by_memory() -> None:
    bound, seconds = limit_of(_kernel(288_000_000, 1_000), RX_5600_XT)
    assert (bound, seconds) == ("memory", pytest.approx(1e-3 / BANDWIDTH_SHARE))


def test_products_are_bound_by_arithmetic_on_the_units_that_have_work() -> None:
    bound, seconds = limit_of(_kernel(1_000, 7_188_480_000), RX_5600_XT)
    assert (bound, seconds) == ("arithmetic", pytest.approx(1e-3 / ARITHMETIC_SHARE))
    _, few = limit_of(_kernel(1_000, 7_188_480_000, workgroups=9), RX_5600_XT)
    assert few == pytest.approx(4 * seconds)


@pytest.mark.parametrize(("loops", "bound"), [(False, "instructions"), (True, "memory")])
def test_instructions_bind_only_where_they_can_be_counted(loops: bool, bound: str) -> None:
    statistics = {"loops": loops, "subgroup_size": 64, "cycles_per_subgroup": 5_000}
    kernel = _kernel(1_000, 0, statistics=statistics)
    assert limit_of(kernel, RX_5600_XT)[0] == bound
    assert limit_of(kernel, H200)[0] == "memory"


def test_many_small_dispatches_cost_their_launches() -> None:
    found = predict([_kernel(4, 1, 1)] * 200, RX_5600_XT)
    assert (found.bound, found.dispatches) == ("launches", 200)
    assert found.seconds >= 200 * DISPATCH_SECONDS
    assert predict([_kernel(4, 1, 1)], RX_5600_XT).bound == "host"


def test_cards_are_known_by_their_device_s_name() -> None:
    assert card_of("NVIDIA H200") is H200
    assert card_of("AMD Radeon RX 5600 XT (RADV NAVI10)") is RX_5600_XT
    assert card_of("llvmpipe (LLVM 15.0.6, 256 bits)") is None


def test_every_experiment_is_predicted() -> None:
    cases = list(predicted_cases(load_plan(), "full"))
    assert {key for key, _ in cases} == {"E1", "E2", "E3", "E4", "E5", "E6"}


def test_the_error_is_a_median_and_a_range() -> None:
    found = [Check(H200, "E1", {}, 1.0, factor) for factor in (1.0, 2.0, 4.0)]
    middle, within = typical_error(found)
    assert (middle, within) == (2.0, pytest.approx(2.0))


def test_loops_are_jumps_upwards() -> None:
    skip = "BB0:\n  s_cbranch_execz BB2 ; bf88\nBB1:\n  v_add_f32 v0, v1, v2\nBB2:\n  s_endpgm\n"
    assert not has_loop(skip)
    assert has_loop(skip.replace("s_endpgm", "s_cbranch_scc1 BB1"))
