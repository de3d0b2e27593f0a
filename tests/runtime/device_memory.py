"""Device memory and plans for the runtime tests, without torch tensors.

In: numpy arrays, plan parts. Out: capsules, addresses, plan specifications.
Forbidden: anything above `torchvk_compile._runtime` but the shader compiler.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

_GET_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_GET_POINTER.restype = ctypes.c_void_p
_GET_POINTER.argtypes = [ctypes.py_object, ctypes.c_char_p]

# The kernels in kernels.slang and the bytes of their arguments.
KERNELS = {"add": 28, "scale": 24, "store": 32, "check": 28, "reverse": 16, "reverseScaled": 16}

DL_CODES = {"i": 0, "u": 1, "f": 2}


class DLTensorHead(ctypes.Structure):
    """The start of DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


def tensor_head(capsule: Any) -> DLTensorHead:
    """The DLTensor inside a capsule; valid while the capsule lives."""
    return DLTensorHead.from_address(_GET_POINTER(capsule, b"dltensor"))


def address(capsule: Any) -> int:
    """Device address of a capsule's data."""
    return tensor_head(capsule).data


def allocate(device: Any, nbytes: int) -> Any:
    """A capsule over ``nbytes`` bytes (uint8)."""
    return device.empty((nbytes,), (1,), DL_CODES["u"], 8, nbytes)


def put(device: Any, array: np.ndarray) -> Any:
    """A capsule that holds a copy of a one-dimensional array."""
    code, bits = DL_CODES[array.dtype.kind], 8 * array.itemsize
    capsule = device.empty(array.shape, (1,), code, bits, array.nbytes)
    device.upload(address(capsule), array.ctypes.data, array.nbytes)
    return capsule


def get(device: Any, source: Any, count: int, dtype: Any = np.float32) -> np.ndarray:
    """``count`` elements from a capsule or an address."""
    array = np.empty(count, dtype)
    start = source if isinstance(source, int) else address(source)
    device.download(start, array.ctypes.data, array.nbytes)
    return array


def floats(count: int, seed: int = 0) -> np.ndarray:
    """Random float32 numbers in [0, 1)."""
    return np.random.default_rng(seed).random(count).astype(np.float32)


# Names a file with the SPIR-V of kernels.slang, for processes that should not import torch.
KERNELS_VARIABLE = "RUNTIME_TEST_KERNELS"


@functools.cache
def kernels() -> bytes:
    """SPIR-V of kernels.slang."""
    if KERNELS_VARIABLE in os.environ:
        return Path(os.environ[KERNELS_VARIABLE]).read_bytes()
    from torchvk_compile.shaders import compile_module

    source = Path(__file__).with_name("kernels.slang").read_text()
    return compile_module(source, list(KERNELS), name="runtime_tests")


def float_bits(value: float) -> int:
    """The bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def pointer(at: int, buffer: tuple, offset: Any = 0) -> dict[str, Any]:
    """A pointer argument."""
    return {"kind": "pointer", "at": at, "buffer": buffer, "offset": offset}


def word(at: int, value: Any, kind: str = "u32") -> dict[str, Any]:
    """An argument that is no pointer; 4 bytes, or 8 for i64 and f64."""
    return {"kind": kind, "at": at, "value": value}


def dispatch(
    kernel: str, groups: Any, arguments: list, *, barrier: bool = False, label: str = ""
) -> dict[str, Any]:
    """A dispatch of one of the kernels in kernels.slang over ``groups`` workgroups."""
    return {
        "kind": "dispatch",
        "kernel": list(KERNELS).index(kernel),
        "label": label or kernel,
        "groups": [groups, 1, 1],
        "barrier": barrier,
        "arguments": arguments,
    }


def plan(name: str, steps: list, **parts: Any) -> dict[str, Any]:
    """A plan specification over the kernels in kernels.slang; ``parts`` replace the defaults."""
    return {
        "name": name,
        "input_count": 0,
        "value_count": 0,
        "arena_bytes": 0,
        "outputs": [],
        "modules": [kernels()],
        "kernels": [
            {
                "module": 0,
                "entry": entry,
                "subgroup_size": 0,
                "full_subgroups": False,
                "argument_bytes": size,
            }
            for entry, size in KERNELS.items()
        ],
        "steps": steps,
        **parts,
    }


def chain(length: int) -> dict[str, Any]:
    """A plan: add two inputs, then ``length - 1`` times scale by 0.5 and add 1.

    Values: element count, buffer bytes (a multiple of 256), workgroups, arena bytes.
    """
    count, nbytes, groups = ("value", 0), ("value", 1), ("value", 2)
    places = [("arena", 0), ("arena", nbytes)]
    targets = [places[step % 2] for step in range(length - 1)] + [("output", 0)]
    steps = [
        dispatch(
            "add",
            groups,
            [
                pointer(0, ("input", 0)),
                pointer(8, ("input", 1)),
                pointer(16, targets[0]),
                word(24, count),
            ],
        )
    ]
    for step in range(1, length):
        arguments = [
            pointer(0, targets[step - 1]),
            pointer(8, targets[step]),
            word(16, float_bits(0.5), "f32"),
            word(20, count),
        ]
        steps.append(dispatch("scale", groups, arguments, barrier=True, label=f"scale {step}"))
    output = {"nbytes": nbytes, "shape": [count], "strides": [1], "dl_code": 2, "dl_bits": 32}
    return plan(
        f"chain of {length}",
        steps,
        input_count=2,
        value_count=4,
        arena_bytes=("value", 3),
        outputs=[output],
    )


def chain_values(count: int) -> list[int]:
    """The values that `chain` takes for ``count`` elements."""
    nbytes = (4 * count + 255) // 256 * 256
    return [count, nbytes, (count + 63) // 64, 2 * nbytes]


def chain_result(first: np.ndarray, second: np.ndarray, length: int) -> np.ndarray:
    """What `chain` computes."""
    result = first + second
    for _ in range(length - 1):
        result = result * np.float32(0.5) + np.float32(1)
    return result
