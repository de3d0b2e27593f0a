"""profile(): every kernel, transfer and phase of compilation is accounted for, once, and the trace is valid."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchvk_compile
from torchvk_compile.device import eager
from torchvk_compile.errors import UsageError
from torchvk_compile.profiling import recording as recording_module
from torchvk_compile.profiling import spans, summary
from torchvk_compile.profiling.recording import Recording
from torchvk_compile.profiling.spans import Span


def _work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x @ w).relu()
    return y.softmax(-1)


@pytest.fixture(scope="module")
def step(vk: torch.device) -> Callable[[], torch.Tensor]:
    x, w = torch.randn(64, 32, device=vk), torch.randn(32, 16, device=vk)
    compiled = torch.compile(_work, backend="torchvk")
    compiled(x, w)
    return lambda: compiled(x, w)


def test_kernels_have_calls_bytes_operations_and_lines(step: Callable[[], torch.Tensor]) -> None:
    with torchvk_compile.profile() as p:
        for _ in range(3):
            step()
    product = next(total for total in p.kernels if "aten.mm" in total.operators)
    assert product.calls == 3
    assert product.total_ns > 0
    assert product.flops == 3 * 2 * 64 * 32 * 16
    assert product.nbytes == 3 * 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert any(
        Path(place.rpartition(":")[0]).name == Path(__file__).name for place in product.places
    )
    softmax = next(total for total in p.kernels if "aten._softmax" in total.operators)
    assert softmax.calls == 3
    assert {total.kernel for total in p.kernels} == {product.kernel, softmax.kernel}
    assert 0 < p.device_seconds <= (p.recording.end_ns - p.recording.begin_ns) / 1e9
    assert p.host_seconds > 0
    assert "aten.mm" in p.report(width=140)


def test_transfers_are_counted(step: Callable[[], torch.Tensor], vk: torch.device) -> None:
    with torchvk_compile.profile() as p:
        step().cpu()
        torch.zeros(1000).to(vk)
    totals = {total.kind: total for total in p.transfers}
    assert (totals["download"].calls, totals["download"].nbytes) == (1, 64 * 16 * 4)
    assert (totals["upload"].calls, totals["upload"].nbytes) == (1, 4000)
    assert all(total.total_ns >= 0 for total in p.transfers)


def test_compilation_is_split(vk: torch.device) -> None:
    x = torch.randn(5, 7, device=vk, requires_grad=True)
    with torchvk_compile.profile() as p:
        torch.compile(lambda x: (x * 3.25).sin().sum(), backend="torchvk")(x).backward()
    times = p.compile_times
    assert set(times) == {"Dynamo", "AOTAutograd", "Inductor", "Slang", "pipelines"}
    assert all(seconds > 0 for seconds in times.values()), times
    assert sum(times.values()) <= (p.recording.end_ns - p.recording.begin_ns) / 1e9


def test_phases_do_not_count_what_is_inside_them() -> None:
    def span(name: str, begin: int, end: int, thread: int = 1) -> Span:
        return Span("compile", name, begin, end, thread)

    recording = Recording(0, 100)
    recording.spans = [
        span("Dynamo", 0, 60),
        span("AOTAutograd", 10, 50),
        span("Inductor", 20, 30),
        span("Inductor", 30, 45),
        span("Slang", 32, 40),
        span("Inductor", 5, 15, thread=2),
    ]
    assert summary.compile_times(recording) == {
        "Dynamo": 20,
        "AOTAutograd": 15,
        "Inductor": 27,
        "Slang": 8,
        "pipelines": 0,
    }


def _check_trace(events: list[dict[str, Any]]) -> None:
    """Sorted by time, no negative durations, nested or disjoint on every track, flows with both ends."""
    timed = [event for event in events if event["ph"] != "M"]
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed)
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    flows: dict[int, str] = defaultdict(str)
    for event in timed:
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append(event)
        else:
            flows[event["id"]] += event["ph"]
    assert set(flows.values()) == {"sf"}
    for track in tracks.values():
        open_ends: list[float] = []
        for event in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            end = event["ts"] + event["dur"]
            while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-3, event
            open_ends.append(end)


def test_chrome_trace(step: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    with torchvk_compile.profile() as p:
        for _ in range(2):
            with torch.profiler.record_function("training step"):
                step().cpu()
    target = tmp_path / "trace.json"
    p.export_chrome_trace(target)
    trace = json.loads(target.read_text())
    events = trace["traceEvents"]
    _check_trace(events)
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(kernels) == len(p.recording.kernels) == 4
    assert {e["args"]["annotation"] for e in kernels} == {"training step"}
    assert any("y.softmax(-1)" in line for e in kernels for line in e["args"]["source"])
    annotations = [e for e in events if e.get("cat") == "annotation"]
    assert [e["name"] for e in annotations] == ["training step"] * 2
    # Kernels start after their submission, and their track is the device's.
    begins = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
    assert all(e["ts"] >= begins[e["id"]] for e in events if e["ph"] == "f")
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert any(name.startswith("vk:0 ") for name in names)
    assert {total.annotations[0] for total in p.kernels} == {"training step"}


def test_profiles_nest(step: Callable[[], torch.Tensor]) -> None:
    with torchvk_compile.profile() as outer:
        step()
        with torchvk_compile.profile() as inner:
            step()
        step()
    assert {total.calls for total in inner.kernels} == {1}
    assert {total.calls for total in outer.kernels} == {3}


def test_profiles_on_several_threads(step: Callable[[], torch.Tensor]) -> None:
    profiles: list[torchvk_compile.profiling.session.Profile] = []
    together = threading.Barrier(3)
    step()

    def work() -> None:
        with torchvk_compile.profile() as p:
            together.wait()
            with torch.profiler.record_function("work"):
                step()
            together.wait()
        profiles.append(p)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # By run, not by kernel: a thread with another number of OpenMP threads compiles a graph of its own.
    assert [len(p.recording.kernels) for p in profiles] == [3 * 2] * 3
    assert sorted(len(p.recording.annotations) for p in profiles) == [0, 0, 3]
    assert (
        len({span.thread for span in profiles[0].recording.spans if span.category == "plan"}) == 3
    )


def test_an_exception_passes_and_the_profile_is_kept(step: Callable[[], torch.Tensor]) -> None:
    p = torchvk_compile.profile()
    with pytest.raises(ZeroDivisionError), p:
        step()
        _ = 1 / 0
    assert {total.calls for total in p.kernels} == {1}
    with p:
        pass
    assert p.kernels == []


def test_nothing_is_left_behind(step: Callable[[], torch.Tensor]) -> None:
    with torchvk_compile.profile():
        step()
    assert not spans.watchers
    assert not recording_module._timed
    assert spans.span("transfer", "upload", nbytes=1) is spans.span("compile", "Slang")
    step()
    from torchvk_compile.device import runtime_device

    assert runtime_device(0).take_timings() == []


def test_a_profiler_of_torch_may_be_at_work(step: Callable[[], torch.Tensor]) -> None:
    with (
        torch.profiler.profile() as theirs,
        torchvk_compile.profile() as ours,
        torch.profiler.record_function("mine"),
    ):
        step()
    assert {total.calls for total in ours.kernels} == {1}
    assert any(event.name == "mine" for event in theirs.events())


def test_dynamic_sizes_count_what_ran(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="torchvk", dynamic=True)
    sizes = (7, 20, 0, 33)
    inputs = [torch.ones(n, 3, device=vk) for n in sizes]
    for x in inputs:
        compiled(x)
    with torchvk_compile.profile() as p:
        for x in inputs:
            compiled(x)
    assert sum(total.flops for total in p.kernels) == 2 * 3 * sum(sizes)


def test_eager_operators_are_profiled_without_python(
    vk: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(5, device=vk, requires_grad=True)
    gradient = torch.ones(5, device=vk)
    for _ in range(3):  # compiled, made known to the runtime, known
        (x * 3).backward(gradient)

    def refuse(*call: Any) -> Any:
        raise AssertionError(f"{call[0]} was left to Python")

    monkeypatch.setattr(eager, "call", refuse)
    with torchvk_compile.profile() as p:
        with torch.profiler.record_function("forward"):
            y = x * 3
        y.backward(gradient)
    with torchvk_compile.profile() as later:
        pass
    calls = [span for span in p.recording.spans if span.category == "plan"]
    assert len(p.recording.kernels) == len(calls) >= 3
    assert {call.details["backward"] for call in calls} == {False, True}
    assert p.recording.begin_ns < calls[0].begin_ns < calls[0].end_ns < p.recording.end_ns
    assert {run.call.begin_ns for run in p.recording.kernels} == {call.begin_ns for call in calls}
    assert calls[0].thread == threading.get_native_id()
    assert any(total.annotations == ["forward"] for total in p.kernels)
    assert later.recording.spans == []


def test_misuse_is_named(step: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    p = torchvk_compile.profile()
    with pytest.raises(RuntimeError, match="after its `with` block"):
        p.report()
    with p, pytest.raises(RuntimeError, match="under way already"), p:
        pass
    target = tmp_path / "no directory" / "trace.json"
    with pytest.raises(UsageError, match="cannot write"):
        p.export_chrome_trace(target)
    assert list(tmp_path.iterdir()) == []
