"""Compile attention with cooperative matrices for the device in use and print what the driver made of it, as JSON.

In: the environment selects the device, usually RADV's null hardware. Out: statistics of the three passes by case on
standard output. Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from compile_attention import statistics

from torchvk_compile.plan.executor import loaded_plans

CASES: dict[str, dict[str, Any]] = {
    "64 causal": {"width": 64, "is_causal": True},
    "80": {"width": 80},
    "128 dropout": {"width": 128, "dropout_p": 0.1},
}


def main() -> None:
    """Print ``{"<width> <settings>": [statistics of each pass]}``."""
    result = {name: statistics(dtype=torch.float16, **case) for name, case in CASES.items()}
    names = {spec.name for plan in loaded_plans() for spec in plan.plan.kernels}
    assert not any(name.startswith("attention_tile") for name in names), names
    print(json.dumps(result))


if __name__ == "__main__":
    main()
