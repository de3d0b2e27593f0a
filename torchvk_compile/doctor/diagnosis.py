"""The whole diagnosis as data, and the verdict that follows from it.

In: what the other files found. Out: `Diagnosis`, ready for JSON.
Forbidden: looking at the machine; printing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from torchvk_compile.doctor.advice import Advice
from torchvk_compile.doctor.drivers import Driver, Memory, Vulkan
from torchvk_compile.doctor.features import Feature
from torchvk_compile.doctor.selftest import CheckResult
from torchvk_compile.doctor.software import Software

_UNTESTED_OUTCOMES = ("skipped",)


@dataclass(frozen=True)
class Choice:
    """Which device training will use.

    Attributes:
        index: its place in `Vulkan.devices`, or None if none can be used.
        reason: why this one, or why none.
        wanted: the setting ``device`` (TORCHVK_DEVICE).
    """

    index: int | None
    reason: str
    wanted: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The answer: ``"ready"``, ``"limited"`` (training in float32 works) or ``"impossible"``.

    `text` is one or two sentences, `steps` says what to do next, `notes` what is worth knowing.
    """

    status: str
    text: str
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Diagnosis:
    """Everything ``torchvk doctor`` reports, in the order in which it is found.

    `overrides` are the variables that replace the list of installed drivers.
    """

    software: Software
    drivers: list[Driver]
    vulkan: Vulkan
    choice: Choice
    overrides: dict[str, str] = field(default_factory=dict)
    features: list[Feature] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    memory: Memory | None = None
    self_test: list[CheckResult] = field(default_factory=list)
    verdict: Verdict = Verdict("impossible", "nothing was examined")

    @property
    def device(self) -> dict[str, Any] | None:
        """The chosen device, as `DeviceProfile.to_dict` gives it."""
        return None if self.choice.index is None else self.vulkan.devices[self.choice.index]

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data, for JSON."""
        return dataclasses.asdict(self)


def judge(diagnosis: Diagnosis, advice_of: dict[str, str]) -> Verdict:
    """The verdict. `advice_of` has the checks that training in float32 can do without."""
    software = diagnosis.software
    if software.torch_error:
        return Verdict(
            "impossible",
            software.torch_error,
            (f'Install a supported release: pip install "torch{software.torch_range}"',),
        )
    device = diagnosis.device
    if device is None:
        return Verdict("impossible", diagnosis.choice.reason, _driver_steps(diagnosis))
    if diagnosis.memory is not None and diagnosis.memory.error:
        text = f"{device['name']} cannot be opened: {diagnosis.memory.error}"
        return Verdict("impossible", text, _failure_steps(diagnosis))
    if software.slang.error:
        return Verdict(
            "impossible", software.slang.error, ("pip install slangtorch brings the compiler.",)
        )
    failed = [result for result in diagnosis.self_test if result.outcome != "pass"]
    notes = _notes(diagnosis, device)
    if any(result.name not in advice_of for result in failed):
        return Verdict("impossible", _failure(failed), _failure_steps(diagnosis), notes)
    if failed:
        names = ", ".join(result.name for result in failed)
        steps = dict.fromkeys(advice_of[result.name] for result in failed)
        return Verdict(
            "limited",
            f"Training in float32 works on {device['name']}, but these do not: {names}.",
            tuple(step[0].upper() + step[1:] + "." for step in steps),
            notes,
        )
    return Verdict("ready", f"Training works on {device['name']}.", (), notes)


def _driver_steps(diagnosis: Diagnosis) -> tuple[str, ...]:
    if diagnosis.choice.wanted is not None and diagnosis.vulkan.devices:
        return ("Unset TORCHVK_DEVICE, or name one of the usable devices above.",)
    if diagnosis.vulkan.devices:
        return ("Update the GPU's driver: a newer one may bring what is missing above.",)
    set_by_hand = tuple(
        f"{name} is set to {value!r}: unset it, or name the manifest of an installed driver."
        for name, value in diagnosis.overrides.items()
    )
    return set_by_hand or (
        "Windows: install the driver from the GPU vendor's site; it contains Vulkan.",
        "Linux: install the Vulkan loader and driver (Debian: libvulkan1 mesa-vulkan-drivers).",
    )


def _failure(failed: list[CheckResult]) -> str:
    tried = [result for result in failed if result.outcome not in _UNTESTED_OUTCOMES]
    first = (tried or failed)[0]
    others = f" ({len(tried) - 1} more checks failed)" if len(tried) > 1 else ""
    return f"The self-test failed at {first.name!r}: {first.detail}{others}"


def _failure_steps(diagnosis: Diagnosis) -> tuple[str, ...]:
    steps = ["Update the GPU's driver, or try an older one, and run `torchvk doctor` again."]
    if len(diagnosis.vulkan.devices) > 1:
        steps.append("Try another device of this machine: TORCHVK_DEVICE=<number or name>.")
    steps.append(
        "Report it with the output of `torchvk doctor --json`: the driver's version and the "
        "check's name say what is broken."
    )
    return tuple(steps)


def _notes(diagnosis: Diagnosis, device: dict[str, Any]) -> tuple[str, ...]:
    notes = []
    if device["device_type"] == "cpu":
        notes.append(
            f"{device['name']} runs on the CPU. It computes the same, slowly; no GPU is used."
        )
    for cache in diagnosis.software.caches:
        if not cache.writable:
            notes.append(
                f"The cache of {cache.name} cannot be written ({cache.path}): every process "
                "compiles anew. Set TORCHVK_CACHE_DIR or TORCHINDUCTOR_CACHE_DIR."
            )
    return tuple(notes)
