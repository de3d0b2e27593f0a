"""``torchvk doctor``: the right verdict and exit status on good, bad and hostile machines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torchvk_compile import cli, torch_compat
from torchvk_compile.doctor import advice, checks, drivers, poison, selftest
from torchvk_compile.doctor.features import features_of

RADEON = {
    "index": 0,
    "name": "AMD Radeon RX 5600 XT",
    "vendor_id": 0x1002,
    "device_id": 0x731F,
    "device_type": "discrete",
    "driver_id": 1,
    "driver_name": "AMD proprietary driver",
    "driver_info": "24.12.1 (AMD proprietary shader compiler)",
    "api_version": "1.3.296",
    "missing": [],
    "null_hardware": False,
    "subgroup_size_control": True,
    "full_subgroups": True,
    "subgroup_extended_types": True,
    "float64": True,
    "nan_preserve": [16, 32, 64],
    "denorm_preserve": [32],
    "float_atomic_add": False,
    "int64_atomics": True,
    "memory_budget": True,
    "timestamp_valid_bits": 64,
    "pipeline_executable_properties": False,
    "max_buffer_bytes": 2 << 30,
    "shared_memory_bytes": 32 << 10,
    "min_subgroup_size": 32,
    "max_subgroup_size": 64,
    "compute_units": 36,
    "heaps": [{"size": 6 << 30, "device_local": True}],
}


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status and printed report."""
    status = cli.main(["doctor", *arguments])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "Traceback" not in captured.out
    return status, captured.out


def play(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace the self-test's child by a Python script; `emit(name, outcome)` reports a check."""
    prelude = (
        "import json, os, sys, time\n"
        "names = sys.argv[1:]\n"
        "def emit(name, outcome=None):\n"
        "    event = dict(name=name)\n"
        "    if outcome: event.update(outcome=outcome, detail='as planned', seconds=0.0)\n"
        "    print('torchvk-selftest ' + json.dumps(event), flush=True)\n"
        "print('a driver says hello')\n"
    )
    command = (sys.executable, "-c", prelude + script)
    monkeypatch.setattr(selftest, "COMMAND", command)


def fail_at(name: str, outcome: str) -> str:
    return f"for name in names: emit(name, {outcome!r} if name == {name!r} else 'pass')"


def pretend(monkeypatch: pytest.MonkeyPatch, *devices: dict[str, Any]) -> None:
    """Let Vulkan list these devices."""
    seen = drivers.Vulkan(devices, ("64-bit integers in shaders (shaderInt64)",), "")
    monkeypatch.setattr(drivers, "list_devices", lambda environment=None: seen)
    monkeypatch.setattr(drivers, "memory_of", lambda index: drivers.Memory(5 << 30, 6 << 30, ""))


def test_everything_works_here(vk: torch.device) -> None:
    command = [sys.executable, "-m", "torchvk_compile", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert [(r["name"], r["outcome"], r["detail"]) for r in found["self_test"]] == [
        (check.name, "pass", "") for check in checks.CHECKS
    ]
    assert done.returncode == 0
    assert found["verdict"]["status"] == "ready"
    assert found["memory"]["total"] > 0
    assert found["vulkan"]["devices"][found["choice"]["index"]]["name"] in found["verdict"]["text"]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("VK_DRIVER_FILES", "/nonexistent/driver.json", "The Vulkan loader found no driver"),
        ("VK_DRIVER_FILES", "/nonexistent/driver.json", "VK_DRIVER_FILES is set to '/nonexi"),
        ("TORCHVK_DEVICE", "voodoo", "TORCHVK_DEVICE='voodoo' matches no Vulkan device"),
        ("TORCHVK_SLANGC", "/nonexistent/slangc", "TORCHVK_SLANGC=/nonexistent/slangc"),
    ],
)
def test_missing_parts_are_named(
    variable: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    status, text = doctor(capsys)
    assert status == 1
    assert "Training cannot work on this machine as it is." in text
    assert said in " ".join(text.split())


def test_driver_manifest_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("nothing of the kind")
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "broken.json"))
    status, text = doctor(capsys)
    assert status == 1
    assert "no device: cannot be read: not a driver manifest" in text


def test_runtime_library_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "_runtime.so"
    library.write_bytes(b"\0" * 100)

    class Spec:
        origin = str(library)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    assert str(library) in drivers.list_devices().error
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "runtime library is not installed" in drivers.list_devices().error


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.abort()", "the process died (SIGABRT)"),
        ("import time; time.sleep(60)", "no answer for 0.5 seconds"),
        ("print('no JSON')", "it said nothing"),
    ],
)
def test_driver_that_takes_the_process_down(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe.py").write_text(program)
    monkeypatch.setattr(drivers, "__file__", str(tmp_path / "drivers.py"))
    monkeypatch.setattr(drivers, "PROBE_SECONDS", 0.5)
    assert said in drivers.list_devices().error


def test_driver_without_its_hardware_is_no_riddle() -> None:
    failed = "vkEnumeratePhysicalDevices failed: VK_ERROR_INITIALIZATION_FAILED (the driver …)."
    assert drivers._in_plain_words(failed).startswith("no GPU of this driver was found")
    other = "vkCreateDevice failed: VK_ERROR_UNKNOWN."
    assert drivers._in_plain_words(other + drivers._OWN_ADVICE) == other


def test_unusable_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {**RADEON, "missing": ["64-bit integers in shaders (shaderInt64)"]})
    status, text = doctor(capsys)
    assert status == 1
    assert "no Vulkan device is usable" in text
    assert "cannot be used: lacks 64-bit integers in shaders (shaderInt64)" in text
    assert "Update the GPU's driver" in text


def test_null_hardware_is_not_a_device_to_train_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {**RADEON, "null_hardware": True})
    monkeypatch.setenv("TORCHVK_DEVICE", "0")
    status, text = doctor(capsys)
    assert status == 1
    assert "compiles shaders but runs nothing" in text
    assert "Unset TORCHVK_DEVICE" in text


def test_device_that_does_not_open(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    failure = drivers.Memory(0, 0, "vkCreateDevice: initialization failed")
    monkeypatch.setattr(drivers, "memory_of", lambda index: failure)
    status, text = doctor(capsys)
    assert status == 1
    assert "cannot be opened: vkCreateDevice: initialization failed" in " ".join(text.split())


def test_torch_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    monkeypatch.setattr(torch_compat, "OLDEST_SUPPORTED", (99, 1))
    status, text = doctor(capsys)
    assert status == 1
    assert "TorchVK needs torch >= 99.1" in text
    assert 'pip install "torch>= 99.1"' in text


def test_cache_that_cannot_be_written_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHVK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    pretend(monkeypatch, RADEON)
    play(monkeypatch, fail_at("", ""))
    status, text = doctor(capsys)
    assert status == 0
    assert "NOT WRITABLE" in text
    assert "every process compiles anew" in " ".join(text.split())


@pytest.mark.parametrize("outcome", ["unwritten", "wrong", "error"])
def test_essential_check_fails(
    outcome: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    play(monkeypatch, fail_at("matmul", outcome))
    status, text = doctor(capsys)
    assert status == 1
    assert f"{outcome.upper():<11}matmul" in text
    assert "The self-test failed at 'matmul': as planned" in text


def test_float16_alone_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    play(monkeypatch, fail_at("matmul float16", "wrong"))
    status, text = doctor(capsys)
    assert status == 0
    assert "Training in float32 works on AMD Radeon RX 5600 XT" in text
    assert "Train in float32, without autocast" in text


def test_crash_costs_one_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    play(
        monkeypatch,
        "for name in names:\n"
        "    emit(name)\n"
        "    if name == 'reductions':\n"
        "        print('lost the device', file=sys.stderr, flush=True); os.abort()\n"
        "    emit(name, 'pass')",
    )
    status, text = doctor(capsys)
    assert status == 1
    assert text.count("pass  ") == len(checks.CHECKS) - 1
    assert "the process died (SIGABRT); lost the device" in " ".join(text.split())


def test_hang_ends_the_self_test(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    play(monkeypatch, "emit(names[0], 'pass'); emit(names[1]); time.sleep(60)")
    status, text = doctor(capsys, "--timeout", "1")
    assert status == 1
    assert f"{'HANG':<11}vector add" in text
    assert text.count("not tried after the hang") == len(checks.CHECKS) - 2
    assert "no answer for 1 seconds" in text


def test_child_that_never_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    play(monkeypatch, "sys.exit('no torch here')")
    status, text = doctor(capsys)
    assert status == 1
    assert "the process died (exit status 1); no torch here" in " ".join(text.split())


def test_json_goes_to_a_file_beside_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON)
    play(monkeypatch, fail_at("", ""))
    status, text = doctor(capsys, "--json", str(tmp_path / "out.json"))
    assert status == 0
    assert "Training works on AMD Radeon RX 5600 XT." in text
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["verdict"]["status"] == "ready"
    assert cli.main(["doctor", "--json", str(tmp_path / "no" / "out.json")]) == 2


def test_report_fits_80_columns_but_for_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pretend(monkeypatch, RADEON)
    play(monkeypatch, fail_at("", ""))
    _, text = doctor(capsys)
    long = [line for line in text.splitlines() if len(line) > 80]
    assert all("/" in line for line in long)
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_advice_for_navi_10_names_its_sources() -> None:
    (compiler, *others) = advice.advice_for(RADEON)
    assert compiler.text.startswith("Install a newer Adrenalin driver")
    newer = advice.advice_for({**RADEON, "driver_info": "26.8.1 (AMD proprietary shader compiler)"})
    assert newer[0].text.startswith("Adrenalin 24.12.1 to 25.6.1 miscompiled")
    everything = [compiler, *others, *newer]
    for driver in (2, 3, 14):
        everything += advice.advice_for({**RADEON, "driver_id": driver})
    assert all(entry.sources for entry in everything)
    assert advice.advice_for({**RADEON, "device_id": 0x73DF}) == []


def test_features_say_what_is_lost() -> None:
    features = {feature.name: feature for feature in features_of(RADEON, ("a", "b"))}
    assert features["a"].required
    assert features["a"].present
    atomics = features["float32 atomic additions (shaderBufferFloat32AtomicAdd)"]
    assert not atomics.present
    assert "slower" in atomics.lost
    old = features_of({**RADEON, "missing": ["Vulkan 1.2 (the driver offers 1.1)"]}, ("a",))
    assert [feature.name for feature in old] == ["Vulkan 1.2 (the driver offers 1.1)"]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.int64])
def test_kernel_that_writes_nothing_is_found(dtype: torch.dtype, vk: torch.device) -> None:
    output = poison.fill(torch.empty(100, dtype=dtype, device=vk))
    assert poison.unwritten(output) == 100
    output[:40] = 1
    with pytest.raises(poison.CheckFailedError, match="left 60 of 100 elements") as caught:
        poison.refuse_unwritten(output, "add")
    assert caught.value.kind == "unwritten"


def wrong_answer() -> Callable[..., list[torch.Tensor]]:
    """A function that gives another result on the device than the reference."""
    return lambda x: [x + 1 if x.device.type == "vk" else x]


def test_wrong_number_is_found(vk: torch.device) -> None:
    with pytest.raises(poison.CheckFailedError, match="3 of 3 elements are wrong") as caught:
        poison.compare(["identity"], wrong_answer(), (torch.zeros(3),), vk, rtol=1e-6)
    assert caught.value.kind == "wrong"


def test_chosen_device_is_the_one_that_training_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, RADEON, {**RADEON, "index": 1, "name": "second"})
    play(monkeypatch, fail_at("", ""))
    monkeypatch.setenv("TORCHVK_DEVICE", "second")
    _, text = doctor(capsys)
    assert "* 1  second" in text
    assert "TORCHVK_DEVICE=second names it" in text
