"""The command line: bad input gives one clear line and the right exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchvk_compile import cli, config


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and the one line on stderr."""
    status = cli.main(["demo", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return status, lines[0]


@pytest.mark.parametrize(
    "arguments",
    [[], ["dema"], ["demo", "--epochs", "0"], ["demo", "--batch-size", "many"], ["demo", "--x"]],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: torchvk" in capsys.readouterr().err


def test_missing_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, line = complaint(capsys, "--data", str(tmp_path / "nowhere"))
    assert status == 2
    assert line == f"torchvk demo: --data {tmp_path / 'nowhere'}: there is no such directory"


def test_corrupt_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("images-idx3", "labels-idx1"):
        (tmp_path / f"t10k-{kind}-ubyte").write_bytes(b"nothing of the kind")
    status, line = complaint(capsys, "--data", str(tmp_path))
    assert status == 1
    assert "t10k-images-idx3-ubyte is not an IDX file" in line


@pytest.mark.parametrize("option", ["--json", "--audit", "--dump-shaders"])
def test_unwritable_outputs_are_refused_before_training(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    status, line = complaint(capsys, option, str(tmp_path / "file" / "out"))
    assert status == 2
    assert f"cannot write {tmp_path / 'file' / 'out'}" in line


def test_json_path_may_not_be_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = complaint(capsys, "--json", str(tmp_path))
    assert status == 2
    assert "it is a directory" in line


@pytest.mark.parametrize("device", ["vk:99", "cpu", "voodoo"])
def test_bad_device_lists_the_good_ones(
    device: str, vk: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = complaint(capsys, "--device", device)
    assert status == 2
    assert f"--device {device}: " in line
    assert "vk:0 (" in line


def test_no_device_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.vk, "device_count", lambda: 0)
    status, line = complaint(capsys)
    assert status == 1
    assert "no usable Vulkan device" in line


def test_no_slang_compiler_is_noticed_before_training(
    vk: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with config.patch(slangc=tmp_path / "nothing"):
        status, line = complaint(capsys)
    assert status == 1
    assert f"TORCHVK_SLANGC={tmp_path / 'nothing'}" in line


def test_invalid_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHVK_CPU_FALLBACK", "maybe")
    status, line = complaint(capsys)
    assert status == 2
    assert "TORCHVK_CPU_FALLBACK: 'maybe' is not valid" in line


def test_module_is_the_command() -> None:
    command = [sys.executable, "-m", "torchvk_compile", "demo", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--dump-shaders" in done.stdout


def test_demo_trains_on_the_device_and_writes_its_result(
    vk: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    audit = tmp_path / "audit.json"
    arguments = ["--epochs", "2", "--json", str(target), "--dump-shaders", str(tmp_path / "slang")]
    arguments += ["--audit", str(audit)]
    assert cli.main(["demo", *arguments]) == 0
    result = json.loads(target.read_text())
    assert result["test_accuracy"] > 0.7
    assert abs(result["test_accuracy"] - result["cpu_test_accuracy"]) <= 0.01
    assert result["max_loss_gap"] <= 1e-3
    assert result["cpu_fallbacks"] == 0
    assert result["gpu_only"] is True
    assert result["submissions_per_graph_call"] == 1
    assert set(result["step_ms"]) == {"compiled", "vk_eager", "cpu_eager"}
    assert list((tmp_path / "slang").glob("*.slang"))
    certificate = json.loads(audit.read_text())["certificate"]
    assert certificate["gpu_only"] is True
    assert certificate["devices"][0]["name"] == result["device"]
    output = capsys.readouterr().out
    assert "test accuracy" in output
    assert str(tmp_path / "slang") in output.replace("\n", "")
