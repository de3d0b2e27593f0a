"""The diagnosis in words, for a terminal 80 columns wide or a pipe.

In: parts of a `Diagnosis`, as they become known. Out: rich output.
Forbidden: finding out or judging anything.
"""

from __future__ import annotations

import textwrap
from typing import Any

from rich.console import Console
from rich.text import Text

from torchvk_compile.doctor.diagnosis import Diagnosis
from torchvk_compile.doctor.selftest import CheckResult
from torchvk_compile.doctor.software import Software

_GIB = 1 << 30
_NAME_COLUMN = 17
_STATUS_STYLES = {"ready": "bold green", "limited": "bold yellow", "impossible": "bold red"}


class Printer:
    """Prints one section after the other."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def software(self, software: Software) -> None:
        """Versions, the compiler, the caches."""
        self._heading("Software")
        versions = dict(software.versions)
        release = versions.pop("torch")
        versions.pop("slang")  # stands with its place below
        supported = software.torch_error or f"supported: {software.torch_range}"
        self._row("torch", f"{release} ({supported})")
        for name, version in versions.items():
            self._row(name, version)
        slang = software.slang
        self._row("slangc", slang.error or f"{slang.version}, {slang.origin}")
        if slang.path:
            self._row("", slang.path)
        for cache in software.caches:
            writable = "" if cache.writable else ", NOT WRITABLE"
            self._row(
                "cache",
                f"{cache.name}: {cache.size / 2**20:.1f} MiB, {cache.files} files{writable}",
            )
            self._row("", cache.path)

    def devices(self, diagnosis: Diagnosis) -> None:
        """The drivers, the devices, and which device is chosen."""
        self._heading("Vulkan drivers")
        for driver in diagnosis.drivers:
            self._line(driver.manifest, indent=2)
            self._line(", ".join(driver.devices) or f"no device: {driver.error}", indent=4)
        if not diagnosis.drivers:
            self._line("none found", indent=2)
        self._heading("Vulkan devices")
        for device in diagnosis.vulkan.devices:
            chosen = "*" if device["index"] == diagnosis.choice.index else " "
            self._line(f"{chosen} {device['index']}  {device['name']}")
            pci = f"{device['vendor_id']:04x}:{device['device_id']:04x}"
            self._line(f"{device['device_type']}, Vulkan {device['api_version']}, PCI {pci}", 5)
            self._line(f"{device['driver_name']} {device['driver_info']}", 5)
            if device["missing"]:
                self._line(f"cannot be used: lacks {', '.join(device['missing'])}", 5)
        if diagnosis.choice.index is not None:
            self._line(f"* is chosen: {diagnosis.choice.reason}", indent=2)
        else:
            self._line(f"none chosen: {diagnosis.choice.reason}", indent=2)

    def device(self, diagnosis: Diagnosis, device: dict[str, Any]) -> None:
        """Features, memory and advice for the chosen device."""
        self._heading(f"Features of {device['name']}")
        for feature in diagnosis.features:
            mark, style = ("yes", "green") if feature.present else ("NO", "red")
            if not (feature.present or feature.required):
                mark, style = "no", "yellow"
            need = "needed" if feature.required else "useful"
            text = feature.name if feature.present else f"{feature.name}: {feature.lost}"
            self._line(f"{mark:<5}{need:<8}{text}", 2, hang=13, style=style, styled=len(mark))
        low, high = device["min_subgroup_size"], device["max_subgroup_size"]
        self._row("subgroup width", str(low) if low == high else f"{low} to {high}")
        self._row("compute units", str(device["compute_units"] or "unknown"))
        self._row("largest buffer", _gib(device["max_buffer_bytes"]))
        for number, heap in enumerate(device["heaps"]):
            place = "on the device" if heap["device_local"] else "on the host"
            self._row(f"heap {number}", f"{_gib(heap['size'])}, {place}")
        memory = diagnosis.memory
        if memory is not None and not memory.error:
            self._row("free now", f"{_gib(memory.free)} of {_gib(memory.total)}")
        for advice in diagnosis.advice:
            self._line(f"note: {advice.text} ({', '.join(advice.sources)})", 2, hang=6)

    def start_of_self_test(self, diagnosis: Diagnosis) -> None:
        """What follows takes a while."""
        assert diagnosis.device is not None
        self._heading(f"Self-test on {diagnosis.device['name']}, against the CPU")

    def check(self, result: CheckResult) -> None:
        """One check, as soon as it is over."""
        good = result.outcome == "pass"
        outcome = "pass" if good else result.outcome.upper()
        text = f"{outcome:<11}{result.name:<22}{result.seconds:5.1f} s"
        self._line(text, 2, style="green" if good else "red", styled=len(outcome))
        for line in result.detail.splitlines():
            self._line(line, 6)

    def verdict(self, diagnosis: Diagnosis) -> None:
        """The answer, at the end where the eye is."""
        verdict = diagnosis.verdict
        style = _STATUS_STYLES[verdict.status]
        self._heading("Verdict")
        text = verdict.text
        if verdict.status == "impossible":
            lost = "Training cannot work on this machine as it is."
            self._line(lost, 2, style=style, styled=len(lost))
            self._line(text, 2)
        else:
            self._line(text, 2, style=style, styled=len(text))
        for step in verdict.steps:
            self._line(f"- {step}", 2, hang=2)
        for note in verdict.notes:
            self._line(f"note: {note}", 2, hang=6)

    def _heading(self, text: str) -> None:
        self._console.print()
        self._line(text, style="bold", styled=len(text))

    def _row(self, name: str, value: str) -> None:
        self._line(f"{name:<{_NAME_COLUMN}}{value}", 2, hang=_NAME_COLUMN)

    def _line(
        self, text: str, indent: int = 0, *, hang: int = 0, style: str = "", styled: int = 0
    ) -> None:
        """Print `text` folded to the width, but with paths in one piece, so that they can be copied.

        `hang` columns more than `indent` from the second line on; `style` covers `styled` characters.
        """
        lines = textwrap.wrap(
            text,
            self._console.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
        for line in lines:
            printed = Text(line)
            if styled > 0:
                start = len(line) - len(line.lstrip())
                printed.stylize(style, start, start + styled)
                styled -= len(line) - start + 1
            self._console.print(printed, soft_wrap=True)


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB"
