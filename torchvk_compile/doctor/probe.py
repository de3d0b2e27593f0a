"""A program of its own: ask Vulkan about this machine and print the answer as one line of JSON.

In: the path of the runtime library, then optionally the index of a device to open; the environment
decides which drivers are asked. Out: on stdout ``{"devices": [...], "required": [...]}``, for an
index ``{"free": bytes, "total": bytes}``, or ``{"error": "..."}``.
Forbidden: importing torch or this package: a driver that crashes takes down nothing but this
process, and a machine without torch's dependencies still gets an answer.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
from typing import Any


def main(library: str, index: str | None = None) -> None:
    """Load the runtime from `library` and print what it says."""
    try:
        runtime = _load(library)
        answer = _devices(runtime) if index is None else _memory(runtime, int(index))
    except (ImportError, RuntimeError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))


def _load(library: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader("_runtime", library)
    spec = importlib.util.spec_from_loader("_runtime", loader)
    assert spec is not None
    runtime = importlib.util.module_from_spec(spec)
    loader.exec_module(runtime)
    return runtime


def _devices(runtime: Any) -> dict[str, Any]:
    return {
        "required": runtime.required_features(),
        "devices": [profile.to_dict() for profile in runtime.physical_devices()],
    }


def _memory(runtime: Any, index: int) -> dict[str, Any]:
    free, total = runtime.device(index).mem_get_info()
    return {"free": free, "total": total}


if __name__ == "__main__":
    main(*sys.argv[1:])
