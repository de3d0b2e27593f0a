"""The course of ``torchvk doctor``: look, choose, test, judge.

In: `DoctorOptions`. Out: the printed report, the JSON, the exit status.
Forbidden: details of any step; opening a device in this process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from torchvk_compile import config, output
from torchvk_compile.device import physical
from torchvk_compile.doctor import drivers, report, selftest, software
from torchvk_compile.doctor.advice import advice_for
from torchvk_compile.doctor.checks import CHECKS
from torchvk_compile.doctor.diagnosis import Choice, Diagnosis, judge
from torchvk_compile.doctor.features import features_of
from torchvk_compile.errors import VulkanError

_TYPES = "discrete, integrated, virtual, other, CPU"


@dataclass(frozen=True)
class DoctorOptions:
    """The command line of ``torchvk doctor``.

    Attributes:
        json: None for a report in words; ``Path("-")`` for JSON on stdout instead; else a file
            that gets the JSON beside the report.
        timeout: seconds that one check of the self-test may take.
    """

    json: Path | None = None
    timeout: float = selftest.CHECK_SECONDS


def run(options: DoctorOptions) -> int:
    """Diagnose, report, and return 0 if training can work on this machine, else 1.

    Raises:
        UsageError: the JSON file cannot be written; known before the diagnosis starts.
    """
    to_stdout = options.json == Path("-")
    if options.json is not None and not to_stdout:
        output.check_writable_file(options.json)
    console = Console(quiet=to_stdout, highlight=False)
    diagnosis = _diagnose(report.Printer(console), options.timeout)
    if to_stdout:
        sys.stdout.write(output.to_json(diagnosis.to_dict()))
    elif options.json is not None:
        output.write_json(diagnosis.to_dict(), options.json)
    return 1 if diagnosis.verdict.status == "impossible" else 0


def _diagnose(printer: report.Printer, timeout: float) -> Diagnosis:
    found = drivers.list_drivers()
    vulkan = drivers.list_devices()
    choice = _choose(vulkan)
    diagnosis = Diagnosis(software.look(), found, vulkan, choice, drivers.overrides())
    printer.software(diagnosis.software)
    printer.devices(diagnosis)
    device = diagnosis.device
    if device is not None:
        diagnosis.features = features_of(device, vulkan.required)
        diagnosis.advice = advice_for(device)
        diagnosis.memory = drivers.memory_of(device["index"])
        printer.device(diagnosis, device)
        unusable = diagnosis.memory.error or diagnosis.software.torch_error
        if not unusable and not diagnosis.software.slang.error:
            _test(diagnosis, printer, timeout)
    optional = {check.name: check.advice for check in CHECKS if not check.essential}
    diagnosis.verdict = judge(diagnosis, optional)
    printer.verdict(diagnosis)
    return diagnosis


def _test(diagnosis: Diagnosis, printer: report.Printer, timeout: float) -> None:
    printer.start_of_self_test(diagnosis)

    def on_result(result: selftest.CheckResult) -> None:
        diagnosis.self_test.append(result)
        printer.check(result)

    selftest.run([check.name for check in CHECKS], on_result, seconds=timeout)


def _choose(vulkan: drivers.Vulkan) -> Choice:
    if vulkan.error:
        return Choice(None, vulkan.error)
    # The same function that training will use, on the same properties.
    profiles = cast(Any, [SimpleNamespace(**device) for device in vulkan.devices])
    try:
        usable = physical.choose(profiles, config.device)
    except VulkanError as error:
        return Choice(None, str(error), config.device)
    if not usable:
        return Choice(None, physical.no_device(profiles))
    chosen, wanted = usable[0], config.device
    if chosen.null_hardware:
        return Choice(None, f"{chosen.name} compiles shaders but runs nothing", wanted)
    if wanted is not None:
        return Choice(chosen.index, f"TORCHVK_DEVICE={wanted} names it", wanted)
    if len(usable) == 1:
        return Choice(chosen.index, "it is the only usable device")
    return Choice(chosen.index, f"first usable device in the order {_TYPES}")
