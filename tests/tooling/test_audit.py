"""audit() and the gate for CPU fallbacks, with a device that only counts."""

from __future__ import annotations

import warnings

import pytest
import torch

from torchvk_compile import audit as start_audit
from torchvk_compile import config, device
from torchvk_compile.audit import CpuFallbackWarning, record_fallback, record_host_op
from torchvk_compile.errors import UnsupportedOperatorError


class CountingDevice:
    def __init__(self) -> None:
        self.numbers = {"dispatches": 5, "submissions": 2, "plan_runs": 2, "uploaded_bytes": 64}

    def counters(self) -> dict[str, int]:
        return dict(self.numbers)

    def work(self, **numbers: int) -> None:
        for name, number in numbers.items():
            self.numbers[name] += number


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[CountingDevice]:
    opened = [CountingDevice()]
    monkeypatch.setattr(device, "opened_devices", lambda: list(opened))
    return opened


def test_counts_only_what_happened_inside(devices: list[CountingDevice]) -> None:
    with start_audit() as audit:
        devices[0].work(dispatches=3, submissions=1, plan_runs=1)
        assert audit.dispatches == 3
    devices[0].work(dispatches=100)
    assert (audit.dispatches, audit.submissions, audit.graph_calls) == (3, 1, 1)
    assert audit.uploaded_bytes == 0
    assert audit.gpu_only


def test_device_opened_inside_counts_from_zero(devices: list[CountingDevice]) -> None:
    with start_audit() as audit:
        devices.append(CountingDevice())
    assert audit.dispatches == 5


def test_audits_nest(devices: list[CountingDevice]) -> None:
    with start_audit() as outer:
        devices[0].work(dispatches=1)
        with start_audit() as inner:
            devices[0].work(dispatches=2)
    assert (outer.dispatches, inner.dispatches) == (3, 2)


def test_fallback_is_an_error_by_default(devices: list[CountingDevice]) -> None:
    with start_audit() as audit, pytest.raises(NotImplementedError) as caught:
        record_fallback("aten.sort.stable", "no sort yet", dtype=torch.float64, shape=(3, 4))
    assert audit.gpu_only
    assert isinstance(caught.value, UnsupportedOperatorError)
    assert caught.value.op == "aten.sort.stable"
    message = str(caught.value)
    for part in ("aten.sort.stable", "float64", "(3, 4)", "no sort yet", "TORCHVK_CPU_FALLBACK"):
        assert part in message


def test_fallback_warns_once_per_operator_and_counts_each(devices: list[CountingDevice]) -> None:
    with config.patch(cpu_fallback="warn"), start_audit() as audit:
        with pytest.warns(
            CpuFallbackWarning,
            match=r"aten.lu on the CPU \(first at .*test_audit.py:.*\): not written",
        ):
            record_fallback("aten.lu", "not written")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            record_fallback("aten.lu", "not written")
    assert audit.fallbacks == {"aten.lu": 2}
    assert not audit.gpu_only
    assert "aten.lu (2)" in audit.report()
    assert "NO" in audit.report()


def test_fallback_may_be_silent_but_is_counted(devices: list[CountingDevice]) -> None:
    with config.patch(cpu_fallback="allow"), warnings.catch_warnings(), start_audit() as audit:
        warnings.simplefilter("error")
        record_fallback("aten.qr", "not written")
    assert audit.to_dict()["fallbacks"] == {"aten.qr": 1}


def test_host_ops_are_not_gpu_only(devices: list[CountingDevice]) -> None:
    with start_audit() as audit:
        record_host_op("aten.unique")
    assert audit.host_ops == {"aten.unique": 1}
    assert not audit.gpu_only


def test_reading_before_the_start_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="has not started"):
        _ = start_audit().dispatches
