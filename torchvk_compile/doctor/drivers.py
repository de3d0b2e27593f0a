"""The Vulkan drivers installed on this machine, and the devices each of them brings.

In: the loader's search paths, or VK_DRIVER_FILES. Out: `Driver` and `Vulkan` records.
Forbidden: loading a driver into this process; deciding which device is chosen.

A driver announces itself by a manifest, a JSON file that names its library (Vulkan loader
documentation, "Driver discovery"). On Windows the registry lists the manifests.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchvk_compile.doctor.child import Child

PROBE_SECONDS = 30.0
"""Longest time that one driver may take to list its devices."""

_OWN_ADVICE = " `torchvk doctor` checks the device and its driver."
"""The end of many of the runtime's errors, out of place in the doctor's own words."""

_OVERRIDES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""Variables that replace the list of installed drivers; the loader prefers the first."""

_DISPLAY_ADAPTERS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"


@dataclass(frozen=True)
class Driver:
    """One driver's manifest.

    Attributes:
        manifest: path of the JSON file.
        library: the library it names, or an empty string where the manifest cannot be read.
        devices: names of its devices.
        error: why it brings none, or an empty string.
    """

    manifest: str
    library: str
    devices: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class Vulkan:
    """What Vulkan lists under the environment as it is.

    Attributes:
        devices: one dictionary a device, as `DeviceProfile.to_dict` gives it, best first.
        required: every feature a device must have, in words.
        error: why there is no answer, or an empty string.
    """

    devices: tuple[dict[str, Any], ...]
    required: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class Memory:
    """Free and total bytes of a device's memory; `error` says why it cannot be opened, if so."""

    free: int
    total: int
    error: str


def list_devices(environment: dict[str, str] | None = None) -> Vulkan:
    """Ask Vulkan for its devices, in a child process."""
    answer = _probe(environment)
    if "error" in answer:
        return Vulkan((), (), answer["error"])
    return Vulkan(tuple(answer["devices"]), tuple(answer["required"]), "")


def memory_of(index: int) -> Memory:
    """Open a device of `list_devices`, in a child process, and ask for its memory."""
    answer = _probe(None, str(index))
    return Memory(answer.get("free", 0), answer.get("total", 0), answer.get("error", ""))


def _probe(environment: dict[str, str] | None, *arguments: str) -> dict[str, Any]:
    """The answer of probe.py; ``{"error": …}`` as well if it died or said nothing."""
    library = importlib.util.find_spec("torchvk_compile._runtime")
    if library is None or library.origin is None:
        reason = "torchvk's runtime library is not installed"
        return {"error": f"{reason}. Install torchvk-compile, or `pip install -e .` in a checkout."}
    program = str(Path(__file__).with_name("probe.py"))
    # Isolated: neither this directory nor the working directory may lend it modules.
    command = [sys.executable, "-I", program, library.origin, *arguments]
    with Child(command, environment) as child:
        # Drivers may print, too; the answer is the last line that is JSON.
        answers = [json.loads(line) for line in child.lines(PROBE_SECONDS) if line.startswith("{")]
        ending = child.ending
    if answers:
        answer = answers[-1]
        if "error" in answer:
            answer["error"] = _in_plain_words(answer["error"])
        return answer
    said = ending.text if ending is not None and ending.text else "it said nothing"
    return {"error": f"asking the Vulkan driver failed: {said}"}


def _in_plain_words(error: str) -> str:
    # What drivers say when none of their hardware is there.
    if error.startswith("vkEnumeratePhysicalDevices failed: VK_ERROR_INITIALIZATION_FAILED"):
        return (
            "no GPU of this driver was found, or this user may not open it (Linux: /dev/dri/renderD*, "
            "group render)"
        )
    return error.removesuffix(_OWN_ADVICE)


def overrides() -> dict[str, str]:
    """The variables that replace the list of installed drivers, where they are set."""
    return {name: os.environ[name] for name in _OVERRIDES if name in os.environ}


def list_drivers() -> list[Driver]:
    """Every driver the Vulkan loader would find, each asked for its devices on its own."""
    return [_driver(manifest) for manifest in dict.fromkeys(_manifests())]


def _driver(manifest: Path) -> Driver:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        library = str(content["ICD"]["library_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a driver manifest"
        return Driver(str(manifest), "", (), f"cannot be read: {reason}")
    found = list_devices({**os.environ, **dict.fromkeys(_OVERRIDES, str(manifest))})
    names = tuple(device["name"] for device in found.devices)
    return Driver(str(manifest), library, names, "" if names else found.error or "no device")


def _manifests() -> Iterator[Path]:
    for value in overrides().values():
        yield from _listed(value)
        return
    yield from _listed(os.environ.get("VK_ADD_DRIVER_FILES", ""))
    if sys.platform == "win32":
        yield from _registered()
        return
    for directory in _directories():
        yield from sorted(directory.glob("*.json"))


def _listed(paths: str) -> Iterator[Path]:
    for text in filter(None, paths.split(os.pathsep)):
        path = Path(text)
        yield from sorted(path.glob("*.json")) if path.is_dir() else (path,)


def _directories() -> Iterator[Path]:
    home = Path(os.environ.get("HOME", "/nonexistent"))
    configuration = os.environ.get("XDG_CONFIG_HOME") or str(home / ".config")
    data = os.environ.get("XDG_DATA_HOME") or str(home / ".local/share")
    roots = [configuration, *(os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)]
    roots += ["/usr/local/etc", "/etc", data]
    roots += (os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(os.pathsep)
    for root in roots:
        yield Path(root) / "vulkan" / "icd.d"


def _registered() -> Iterator[Path]:
    """Manifests in the Windows registry: each display adapter's own, then the common list."""
    import winreg

    machine = winreg.HKEY_LOCAL_MACHINE  # type: ignore[attr-defined]
    for number in range(64):
        values = _registry_values(machine, rf"{_DISPLAY_ADAPTERS}\{number:04d}")
        named = values.get("VulkanDriverName", ())
        yield from (Path(text) for text in ((named,) if isinstance(named, str) else named))
    for name, disabled in _registry_values(machine, r"SOFTWARE\Khronos\Vulkan\Drivers").items():
        if disabled == 0:
            yield Path(name)


def _registry_values(root: Any, key: str) -> dict[str, Any]:
    import winreg

    values = {}
    try:
        with winreg.OpenKey(root, key) as handle:  # type: ignore[attr-defined]
            for index in range(winreg.QueryInfoKey(handle)[1]):  # type: ignore[attr-defined]
                name, value, _ = winreg.EnumValue(handle, index)  # type: ignore[attr-defined]
                values[name] = value
    except OSError:  # no such key, or no permission to read it
        pass
    return values
