"""Compiling for a card that is not there: Mesa's RADV as a compiler, in a process of its own.

In: a target's name, what to inspect. Out: the reports of that process.
Forbidden: touching the devices of this process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchvk_compile.errors import TorchVKError, UsageError
from torchvk_compile.inspection.model import DeviceReport, Inspection

_DRIVER_DIRECTORIES = (
    "/usr/share/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
)
_TIMEOUT_S = 1800


@dataclasses.dataclass(frozen=True)
class Target:
    """A card that a driver compiles for without having it.

    Attributes:
        name: of the target on the command line.
        card: for people.
        drivers: file names the driver's manifest may have.
        environment: what makes the driver offer it.
        device: what ``TORCHVK_DEVICE`` selects it by.
        package: what to install where the driver is missing.
    """

    name: str
    card: str
    drivers: tuple[str, ...]
    environment: dict[str, str]
    device: str
    package: str


TARGETS = {
    "navi10": Target(
        "navi10",
        "Radeon RX 5600 XT (RDNA1)",
        ("radeon_icd.json", "radeon_icd.x86_64.json", "radeon_icd.aarch64.json"),
        {"RADV_FORCE_FAMILY": "navi10"},
        "NAVI10",
        "mesa-vulkan-drivers",
    )
}


def find_target(name: str) -> tuple[Target, Path]:
    """A target and its driver's manifest.

    Raises:
        UsageError: for an unknown target.
        TorchVKError: its driver is not installed.
    """
    if name not in TARGETS:
        known = ", ".join(sorted(TARGETS))
        raise UsageError(f"--target {name}: there is no such target; known: {known}")
    target = TARGETS[name]
    for directory in _DRIVER_DIRECTORIES:
        for driver in target.drivers:
            path = Path(directory, driver)
            if path.is_file():
                return target, path
    raise TorchVKError(
        f"--target {name}: the RADV driver, which compiles for it, is not installed "
        f"(Debian: {target.package})"
    )


def reports_for(name: str, arguments: Sequence[str]) -> tuple[DeviceReport, ...]:
    """What ``torchvk inspect`` with these arguments reports where the target is the device.

    Raises:
        TorchVKError: with the message of that process, if it fails.
    """
    target, driver = find_target(name)
    with tempfile.TemporaryDirectory(prefix="torchvk-target-") as directory:
        result = Path(directory, "inspection.json")
        command = [sys.executable, "-m", "torchvk_compile", "inspect", *arguments]
        done = subprocess.run(
            [*command, "--json", str(result), "--quiet"],
            env=os.environ | target_environment(target, driver),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0 or not result.exists():
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            message = lines[-1].removeprefix("torchvk inspect: ")
            raise TorchVKError(f"--target {name}: {message}")
        inspection = Inspection.from_dict(json.loads(result.read_text(encoding="utf-8")))
    return tuple(
        dataclasses.replace(report, device=f"{target.card}, by {report.device}")
        for report in inspection.reports
    )


def target_environment(target: Target, driver: Path) -> dict[str, str]:
    """Environment variables that make the target the only device of a process."""
    return target.environment | {
        "VK_DRIVER_FILES": str(driver),
        "VK_ICD_FILENAMES": str(
            driver
        ),  # the loader's older name, which would add the machine's own
        "TORCHVK_DEVICE": target.device,
    }
