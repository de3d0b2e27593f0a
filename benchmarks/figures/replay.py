"""What a kernel costs inside a recorded graph: 500 tiny kernels, one after another or side by side.

In: a device. Out: cases whose work is all launching. Forbidden: the compiler; the plan is written by hand.
"""

from __future__ import annotations

from typing import Any

import torch

from figures.case import Case, Place, Program, Work, normal

_KERNELS = 500
_ELEMENTS = 64
_SLANG = """
struct Arguments { float* source; float* target; };
[[vk::binding(0, 0)]] ConstantBuffer<Arguments> arguments;

[shader("compute")] [numthreads(64, 1, 1)]
void increment(uint3 thread : SV_DispatchThreadID)
{
    arguments.target[thread.x] = arguments.source[thread.x] + 1.0f;
}
"""


def cases(full: bool) -> list[Case]:
    """The same on every device."""
    return [
        Case(
            "replay",
            f"{_KERNELS} kernels, each on the one before",
            _dependent,
            Work(),
            0.0,
            replayable=True,
        ),
        Case(
            "replay",
            f"{_KERNELS} kernels, independent",
            _independent,
            Work(),
            1e-6,
            replayable=True,
        ),
    ]


def _dependent(place: Place) -> Program:
    """`x`, incremented 500 times."""
    x = place.put(torch.zeros(_ELEMENTS))
    if place.compiled and x.device.type == "vk":
        return _plan(x, dependent=True)

    def steps(x: torch.Tensor) -> torch.Tensor:
        for _ in range(_KERNELS):
            x = x + 1.0
        return x

    return lambda: steps(x)


def _independent(place: Place) -> Program:
    """Every row of a (500, 64) matrix, incremented by a kernel of its own."""
    x = place.put(normal(_KERNELS, _ELEMENTS, seed=1))
    if place.compiled and x.device.type == "vk":
        return _plan(x, dependent=False)
    out = torch.empty_like(x)
    rows, results = x.unbind(), out.unbind()

    def steps() -> torch.Tensor:
        for row, result in zip(rows, results):
            torch.add(row, 1.0, out=result)
        return out

    return steps


def _plan(x: torch.Tensor, *, dependent: bool) -> Program:
    from torchvk_compile import shaders
    from torchvk_compile.device import runtime_device, tensor_from_capsule

    device = runtime_device(x.device.index or 0)
    nbytes = 4 * x.numel()
    row = 4 * _ELEMENTS

    def pointer(at: int, buffer: tuple[str, int], offset: int = 0) -> dict[str, Any]:
        return {"kind": "pointer", "at": at, "buffer": buffer, "offset": offset}

    steps: list[dict[str, Any]] = []
    for i in range(_KERNELS):
        if dependent:
            source = pointer(0, ("input", 0) if i == 0 else ("output", 0))
            target = pointer(8, ("output", 0))
        else:
            source = pointer(0, ("input", 0), i * row)
            target = pointer(8, ("output", 0), i * row)
        steps.append(
            {
                "kind": "dispatch",
                "kernel": 0,
                "label": "increment",
                "groups": [1, 1, 1],
                "barrier": dependent and i > 0,
                "arguments": [source, target],
            }
        )
    plan = device.build_plan(
        {
            "name": "increments",
            "input_count": 1,
            "value_count": 0,
            "arena_bytes": 0,
            "outputs": [
                {
                    "nbytes": nbytes,
                    "shape": list(x.shape),
                    "strides": list(x.stride()),
                    "dl_code": 2,
                    "dl_bits": 32,
                }
            ],
            "modules": [shaders.compile_module(_SLANG, ["increment"], name="increments")],
            "kernels": [
                {
                    "module": 0,
                    "entry": "increment",
                    "subgroup_size": 0,
                    "full_subgroups": False,
                    "argument_bytes": 16,
                }
            ],
            "steps": steps,
        }
    )
    return lambda: tensor_from_capsule(plan.run([x.data_ptr()], [])[0])
