"""A statement that everything ran on the GPU, to attach to a benchmark.

In: an audit's counts, the devices that worked, digests of their shaders. Out: `Certificate`.
Forbidden: certifying a run in which anything was computed on the CPU.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchvk_compile.errors import NotGpuOnlyError
from torchvk_compile.versions import versions

if TYPE_CHECKING:
    from torchvk_compile._runtime import DeviceProfile

_COUNTS = (
    "dispatches",
    "submissions",
    "plan_runs",
    "uploads",
    "uploaded_bytes",
    "downloads",
    "downloaded_bytes",
)


@dataclass(frozen=True)
class CertifiedDevice:
    """A device that worked. `type` "cpu" means a software driver: the CPU in the role of a GPU."""

    name: str
    type: str
    driver: str
    api_version: str
    pci: str


@dataclass(frozen=True)
class Certificate:
    """What ran, where, and under which versions, with no operator computed on the CPU.

    Attributes:
        devices: those that launched kernels.
        versions: of Python, torch, torchvk-compile, the Slang compiler and the operating system;
            the drivers' versions are with the devices.
        shaders: number of distinct shader modules that ran.
        shader_hash: SHA-256 over the sorted SHA-256 digests of their SPIR-V; equal hashes mean
            equal shaders.
        counts: of dispatches, submissions, graph calls and copies.
    """

    devices: tuple[CertifiedDevice, ...]
    versions: dict[str, str]
    shaders: int
    shader_hash: str
    counts: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain data."""
        return {"gpu_only": True, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        """The certificate as the text of a JSON file."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def certify(
    audit: dict[str, Any], profiles: Sequence[DeviceProfile], digests: Iterable[str]
) -> Certificate:
    """The certificate of an audit.

    Raises:
        NotGpuOnlyError: it cannot be given.
    """
    on_cpu = {**audit["fallbacks"], **audit["host_ops"]}
    if on_cpu:
        places = [e for e in audit["entries"] if e["kind"] == "cpu" and e["place"]]
        first = f", first at {places[0]['place']}" if places else ""
        calls = ", ".join(f"{op} ({count} calls)" for op, count in sorted(on_cpu.items()))
        raise NotGpuOnlyError(
            f"no certificate: computed on the CPU were {calls}{first}. With "
            'config.cpu_fallback = "error", the default, they raise where they are called'
        )
    if not profiles:
        raise NotGpuOnlyError(
            "no certificate: nothing ran on a vk device inside the audit. Move the model and its "
            "inputs to vk, and call it inside the `with` block"
        )
    ordered = sorted(digests)
    return Certificate(
        devices=tuple(_device(profile) for profile in profiles),
        versions=versions(),
        shaders=len(ordered),
        shader_hash=hashlib.sha256("\n".join(ordered).encode()).hexdigest(),
        counts={name: audit[name] for name in _COUNTS},
    )


def _device(profile: DeviceProfile) -> CertifiedDevice:
    return CertifiedDevice(
        name=profile.name,
        type=profile.device_type,
        driver=f"{profile.driver_name} {profile.driver_info}",
        api_version=profile.api_version,
        pci=f"{profile.vendor_id:04x}:{profile.device_id:04x}",
    )
