"""Compile every kernel of the test models for the RX 5600 XT and write docs/navi10.md.

In: Mesa's RADV driver. Out: the page, and every kernel as JSON. Forbidden: running kernels.

    python benchmarks/target_navi10.py

Ends with status 1 if a kernel spills.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from target.page import page

_MODELS = Path(__file__).parent / "target" / "compile_models.py"
_PAGE = Path(__file__).parent.parent / "docs" / "navi10.md"
_RESULTS = Path("build/navi10.json")
_DRIVERS = [
    Path("/usr/share/vulkan/icd.d") / name for name in ("radeon_icd.json", "radeon_icd.x86_64.json")
]


def main() -> int:
    """Compile the models, one process each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, default=_RESULTS, help=f"every kernel, read and added to ({_RESULTS})"
    )
    parser.add_argument("--only", default="", help="compile the models with this in their names")
    arguments = parser.parse_args()
    from target.compile_models import SUBJECTS

    results: dict[str, dict[str, Any]] = {}
    if arguments.only and arguments.json.exists():
        results = json.loads(arguments.json.read_text(encoding="utf-8"))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for name in SUBJECTS:
        if arguments.only.lower() in name.lower():
            print(name, file=sys.stderr, flush=True)
            results[name] = compile_model(name)
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    models = {name: results[name]["kernels"] for name in SUBJECTS if name in results}
    text = page(next(iter(results.values()))["device"], models)
    print(text)
    if len(models) == len(SUBJECTS):
        _PAGE.write_text(text, encoding="utf-8")
    spilling = [row["kernel"] for rows in models.values() for row in rows if row["spills"]]
    if spilling:
        print("these kernels spill:", *spilling, sep="\n  ", file=sys.stderr)
    return 1 if spilling else 0


def compile_model(name: str) -> dict[str, Any]:
    """``{"device": name, "kernels": rows}`` of one model.

    Raises:
        RuntimeError: when RADV is missing or the model cannot be compiled.
    """
    driver = next((path for path in _DRIVERS if path.exists()), None)
    if driver is None:
        raise RuntimeError("Mesa's RADV driver is missing; it comes with mesa-vulkan-drivers")
    with tempfile.TemporaryDirectory() as caches:
        environment = os.environ | {
            "RADV_FORCE_FAMILY": "navi10",
            "VK_DRIVER_FILES": str(driver),
            "TORCHVK_DEVICE": "NAVI10",
            "TORCHVK_VALIDATION": "0",
            "TORCHVK_CACHE_DIR": f"{caches}/torchvk",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        command = [sys.executable, str(_MODELS), name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} could not be compiled:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
