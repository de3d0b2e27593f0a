"""What a card with matrix units says of itself, for tests of choices that run anywhere.

In: properties to change. Out: as much of a `DeviceProfile` as the choices look at. Forbidden: opening a device.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def shape(dtype: str, *sizes: int, sums: str = "float32") -> dict[str, Any]:
    """One entry of ``cooperative_matrix_shapes``: `sizes` are m, n, k."""
    m, n, k = sizes
    return {"m": m, "n": n, "k": k, "a": dtype, "b": dtype, "c": sums}


def card(**changed: Any) -> Any:
    """The profile of a large NVIDIA card, but for what is `changed`."""
    profile = {
        "device_type": "discrete",
        "vendor_id": 0x10DE,
        "compute_units": 132,
        "subgroup_size": 32,
        "min_subgroup_size": 32,
        "max_subgroup_size": 32,
        "subgroup_size_control": True,
        "full_subgroups": True,
        "memory_model": True,
        "max_workgroup_invocations": 1024,
        "shared_memory_bytes": 48 << 10,
        "cooperative_matrix_shapes": [
            shape("float16", 16, 8, 16),
            shape("float16", 16, 16, 16, sums="float16"),
            shape("float16", 16, 16, 16),
            shape("bfloat16", 16, 16, 16),
            shape("int8", 16, 16, 32, sums="int32"),
        ],
    }
    return SimpleNamespace(**profile | changed)
