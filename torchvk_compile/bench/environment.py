"""The machine and the software that results were made with.

In: a vk device. Out: plain data for the results' head. Forbidden: opening a device; failing because a fact is unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from torchvk_compile.versions import versions


def describe(device: torch.device) -> dict[str, Any]:
    """Device, driver, versions, processor and, where a tool tells, clocks.

    ``id`` is a digest of what does not change from minute to minute: results of one id belong together.
    """
    properties = torch.vk.get_device_properties(device)  # type: ignore[attr-defined]
    stable = {
        "device": properties.name,
        "device_type": properties.device_type,
        "driver": f"{properties.driver_name} {properties.driver_info}".strip(),
        "api_version": properties.api_version,
        "compute_units": properties.compute_units,
        "subgroup_size": properties.subgroup_size,
        "device_memory_bytes": max((heap["size"] for heap in properties.heaps), default=0),
        "versions": versions(),
        "processor": _processor(),
        "processor_count": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "cuda_device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    digest = hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:12]
    return {"id": digest, **stable, "clocks": clocks(), "load_average": _load()}


def device_slug(name: str) -> str:
    """A device's name as the name of a directory: ``llvmpipe-llvm-15-0-6-256-bits``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "device"


def clocks() -> dict[str, Any]:
    """Clocks and temperature as nvidia-smi or Linux' amdgpu driver tell them; empty where neither does."""
    return _nvidia_clocks() or _amd_clocks()


def _nvidia_clocks() -> dict[str, Any]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    names = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
    command = [tool, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = done.stdout.splitlines()[0].split(", ") if done.stdout.strip() else []
    units = ("sm_mhz", "memory_mhz", "celsius", "watts")
    return {unit: _number(value) for unit, value in zip(units, values)}


def _amd_clocks() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, unit in (("pp_dpm_sclk", "shader_mhz"), ("pp_dpm_mclk", "memory_mhz")):
        for path in sorted(Path("/sys/class/drm").glob(f"card*/device/{name}")):
            try:
                active = [line for line in path.read_text().splitlines() if line.endswith("*")]
            except OSError:
                continue
            match = re.search(r"(\d+)Mhz", active[0]) if active else None
            if match:
                found[unit] = int(match[1])
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None  # Windows has none


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
