"""``torchvk bench`` from outside: bad input in one line, killed and resumed, results with proof."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from torchvk_compile import cli
from torchvk_compile.bench.plan import plan_path
from torchvk_compile.bench.records import RESULTS_FILE

_DEADLINE_SECONDS = 240


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and the one line on stderr."""
    status = cli.main(["bench", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return status, lines[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["E7"], "no experiment 'E7'; there is E1 (Vector addition)"),
        (["report"], "report takes one directory"),
        (["report", "nowhere"], "cannot read nowhere"),
        (["predict", "nowhere"], "cannot read nowhere"),
        (["--plan", "nowhere.toml"], "cannot read the plan nowhere.toml"),
        (["E3", "--data", "nowhere"], "--data nowhere: there is no such directory"),
        (["E1", "--device", "vk:99"], "--device vk:99: not a Vulkan device of this machine"),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    arguments: list[str], says: str, vk: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = complaint(capsys, *arguments)
    assert status == 2
    assert line.startswith(f"torchvk bench: {says}")
    assert not Path("nowhere").exists()


def test_no_device_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.vk, "device_count", lambda: 0)
    status, line = complaint(capsys, "E1")
    assert status == 1 and "no usable Vulkan device" in line


def test_an_unwritable_output_is_noticed_before_measuring(
    vk: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    status = cli.main(["bench", "E1", "--output", str(tmp_path / "file"), "--no-peers"])
    assert status == 2
    assert "cannot write" in capsys.readouterr().err.splitlines()[-1]


def _small_plan(directory: Path) -> Path:
    text = plan_path().read_text(encoding="utf-8")
    for old, new in (
        ("sizes = [1_000, 100_000, 10_000_000]", "sizes = [100, 200, 300, 400]"),
        (
            'ways = ["vk-compiled", "vk-eager", "cpu-eager", "torchvulkan", "cuda-eager"]\nrounds = 7',
            'ways = ["vk-compiled", "cpu-eager"]\nrounds = 3',
        ),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    path = directory / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _lines(output: Path) -> list[bytes]:
    found = list(output.glob(f"*/*/{RESULTS_FILE}"))
    return found[0].read_bytes().splitlines(keepends=True) if found else []


def _results(output: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in _lines(output) if line.endswith(b"\n")]
    return [record for record in records if record["kind"] == "result"]


@pytest.mark.long
def test_a_killed_run_goes_on_where_it_stopped(vk: torch.device, tmp_path: Path) -> None:
    plan, output = _small_plan(tmp_path), tmp_path / "results"
    command = [sys.executable, "-m", "torchvk_compile", "bench", "E1", "--quick", "--no-peers"]
    command += ["--plan", str(plan), "--output", str(output)]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while len(_results(output)) < 2 and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    first.wait()
    kept = [line for line in _lines(output) if line.endswith(b"\n")]
    assert len(_results(output)) >= 2

    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "results are in" in done.stderr
    assert _lines(output)[: len(kept)] == kept
    results = _results(output)
    cases = [(r["case"]["workload"], r["case"]["n"]) for r in results]
    expected = [(work, n) for n in (100, 200, 300, 400) for work in ("add", "copy")]
    assert cases == expected
    (report,) = output.glob("*/*/report.html")
    assert "not the committed one" in report.read_text(encoding="utf-8")

    way = results[0]["ways"]["vk-compiled"]
    assert len(way["seconds"]) == len(way["at"]) == 3
    assert way["facts"]["audit"]["certificate"]["gpu_only"]
    assert way["facts"]["kernels"][0]["read_bytes"] == 800
    assert way["check"]["error"] < 1e-6
