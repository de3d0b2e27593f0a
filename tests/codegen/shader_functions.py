"""Runs functions of the Slang library on the device, one element per invocation.

In: Slang expressions over operands a, b, c and numpy arrays. Out: numpy arrays.
Forbidden: torch.compile; tolerances (the tests choose them).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from torchvk_compile.device import runtime_device
from torchvk_compile.shaders import FloatControls, compile_module

SLANG_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint",
    "uint64": "uint64_t",
}
_WORKGROUP = 64
_KERNEL = """
{imports}

struct Arguments
{{
{fields}
    {result}* out;
    int count;
}};
[[vk::binding(0, 0)]] ConstantBuffer<Arguments> arguments;

groupshared {result} exchanged[{workgroup}];

[shader("compute")]
[numthreads({workgroup}, 1, 1)]
void evaluate(uint3 thread : SV_DispatchThreadID)
{{
    let i = int(thread.x);
    if (i >= arguments.count) return;
{operands}
    {statement};
}}
"""


def evaluate(
    expression: str, *operands: np.ndarray, result: Any, modules: Sequence[str] = ()
) -> np.ndarray:
    """The ``expression`` of a, b, c ... for each element of the operands, as dtype ``result``."""
    output = np.zeros(len(operands[0]), result)
    return _run(f"arguments.out[i] = {expression}", operands, output, modules)


def update(
    statement: str, target: np.ndarray, *operands: np.ndarray, modules: Sequence[str] = ()
) -> np.ndarray:
    """A copy of ``target`` after ``statement`` ran for each element a, b ... of the operands.

    The statement reaches the target through the pointer arguments.out.
    """
    return _run(statement, operands, target, modules)


def _run(
    statement: str, operands: Sequence[np.ndarray], target: np.ndarray, modules: Sequence[str]
) -> np.ndarray:
    names = "abcdef"[: len(operands)]
    types = [SLANG_TYPES[operand.dtype.name] for operand in operands]
    source = _KERNEL.format(
        imports="\n".join(f"import {module};" for module in modules),
        fields="\n".join(f"    {t}* {name};" for t, name in zip(types, names)),
        operands="\n".join(f"    let {name} = arguments.{name}[i];" for name in names),
        result=SLANG_TYPES[target.dtype.name],
        workgroup=_WORKGROUP,
        statement=statement,
    )
    count, count_at = len(operands[0]), 8 * (len(operands) + 1)
    pointers = [
        {"kind": "pointer", "at": 8 * i, "buffer": ("input", i), "offset": 0}
        for i in range(len(operands) + 1)
    ]
    device = runtime_device(0)
    controls = FloatControls.of(device.profile)
    spirv = compile_module(source, ["evaluate"], name="library_test", float_controls=controls)
    plan = device.build_plan(
        {
            "name": "library_test",
            "input_count": len(pointers),
            "value_count": 0,
            "arena_bytes": 0,
            "outputs": [],
            "modules": [spirv],
            "kernels": [
                {
                    "module": 0,
                    "entry": "evaluate",
                    "subgroup_size": 0,
                    "full_subgroups": False,
                    "argument_bytes": count_at + 4,
                }
            ],
            "steps": [
                {
                    "kind": "dispatch",
                    "kernel": 0,
                    "label": "evaluate",
                    "groups": [-(-count // _WORKGROUP), 1, 1],
                    "barrier": False,
                    "arguments": [*pointers, {"kind": "i32", "at": count_at, "value": count}],
                }
            ],
        }
    )
    # As bytes, so that every dtype crosses to the device in the same way.
    tensors = [
        torch.from_numpy(np.ascontiguousarray(array).view(np.uint8)).to("vk")
        for array in (*operands, target)
    ]
    plan.run([tensor.data_ptr() for tensor in tensors], [])
    return tensors[-1].cpu().numpy().view(target.dtype)


# ---- subnormal numbers ---------------------------------------------------------------------------


@functools.cache
def flushes_subnormals() -> bool:
    """Whether the device takes subnormal float32 numbers for zero.

    Kernels ask for them to be kept where the driver offers it (`denorm_preserve` in the profile). What comes of it is
    measured here: NVIDIA's driver 580 was seen to flush them.
    """
    tiny = np.array([np.finfo(np.float32).smallest_subnormal], np.float32)
    return bool(evaluate("a * 2.0f", tiny, result=np.float32)[0] == 0)


def as_on_device(x: np.ndarray) -> np.ndarray:
    """`x` with its subnormal numbers as the device sees them: as zeros with their sign, or as they are."""
    if x.dtype != np.float32 or not flushes_subnormals():
        return x
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


# ---- operands ------------------------------------------------------------------------------------


def every_exponent(dtype: Any, count: int = 20_000, seed: int = 0) -> np.ndarray:
    """Adversarial floats: limits, subnormals (where the device has them), NaN, random bits, dense samples near 0."""
    dtype = np.dtype(dtype)
    generator = np.random.default_rng(seed)
    info = np.finfo(dtype)
    limits = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, math.inf, -math.inf, math.nan, math.pi]
    limits += [info.tiny, -info.tiny, info.max, -info.max, info.smallest_subnormal, 1 - info.epsneg]
    limits += [1 + info.eps, 1 / info.eps, 2 / info.eps + 1, 88.72284, -103.98, 709.79, 1e10, 1e30]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = generator.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True)
    ranges = [generator.uniform(-w, w, count).astype(dtype) for w in (1.0, 20.0, 110.0)]
    return as_on_device(np.concatenate([np.array(limits, dtype), bits.view(dtype), *ranges]))


def pairs(dtype: Any, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Two operands: all pairs of limits, and shuffled adversarial floats."""
    values = every_exponent(dtype, count)
    grid = np.meshgrid(values[:26], values[:26])
    shuffled = np.random.default_rng(7).permutation(values)
    return np.concatenate([grid[0].ravel(), values]), np.concatenate([grid[1].ravel(), shuffled])


# ---- errors --------------------------------------------------------------------------------------


def ulp_errors(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of ``actual``'s dtype; ``exact`` has more digits.

    NaN, infinities and their signs must agree; a disagreement counts as infinitely many. A subnormal result may be
    zero on a device that flushes them.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(actual.dtype)
        flushed = as_on_device(rounded)
        exact = np.where((flushed == 0) & (actual == 0), flushed.astype(exact.dtype), exact)
        spacing = np.spacing(np.abs(rounded)).astype(exact.dtype)
        errors = np.abs(actual.astype(exact.dtype) - exact) / spacing
    special = ~np.isfinite(rounded) | ~np.isfinite(actual)
    same = (np.isnan(rounded) & np.isnan(actual)) | (rounded == actual)
    return np.where(special, np.where(same, 0.0, np.inf), errors)


def worst(errors: np.ndarray, actual: np.ndarray, exact: np.ndarray, *operands: np.ndarray) -> str:
    """The element with the largest error, for an assertion's message."""
    at = int(np.nanargmax(errors))
    arguments = ", ".join(repr(operand[at].item()) for operand in operands)
    return f"{errors[at]:.2f} at ({arguments}): {actual[at]!r}, expected {exact[at]!r}"


def with_torch(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
    """A torch function on numpy arrays."""

    def wrapped(*operands: np.ndarray) -> np.ndarray:
        return function(*(torch.from_numpy(operand) for operand in operands)).numpy()

    return wrapped
