"""The speeds that bound every kernel of a device: measured where it runs, looked up where it only compiles.

In: a device. Out: a `Roof`. Forbidden: judging kernels.
"""

from __future__ import annotations

import functools

import torch

from torchvk_compile.cards import RX_5600_XT, Roof
from torchvk_compile.codegen.templates import render
from torchvk_compile.plan.executor import CompiledPlan
from torchvk_compile.plan.graph_plan import (
    Dispatch,
    GraphPlan,
    KernelArgument,
    KernelSpec,
    Operand,
    OutputBuffer,
)
from torchvk_compile.profiling.recording import Recorder

SPECIFICATIONS = {"navi10": RX_5600_XT.roof}
"""Roofs of the targets that kernels can be compiled for without the card."""

_WORKGROUP = 256
_CHAINS = 8
_ROUNDS = 256
_COPIED_BYTES = 64 << 20
_LANES_PER_UNIT = 2048
_RUNS = 5


@functools.cache
def measured_roof(device_index: int) -> Roof | None:
    """The best of a few runs of a copy and of independent multiply-adds; None without timestamps.

    Takes 128 MiB of device memory for a moment.
    """
    from torchvk_compile.device import runtime_device

    units = max(runtime_device(device_index).profile.compute_units, 1)
    lanes = -(-units * _LANES_PER_UNIT // _WORKGROUP) * _WORKGROUP
    plan = CompiledPlan(_plan(lanes), device_index)
    source = torch.zeros(_COPIED_BYTES // 4, device=f"vk:{device_index}")
    recorder = Recorder(annotations=False)
    recorder.start()
    try:
        for _ in range(_RUNS):
            plan((source,))
    finally:
        recording = recorder.stop()
    best = [
        min((run.duration_ns for run in recording.kernels if run.position == position), default=0)
        for position in (0, 1)
    ]
    if not all(best):
        return None
    flops = lanes * 4 * _CHAINS * _ROUNDS * 2
    return Roof(2 * _COPIED_BYTES / best[0] * 1e9, flops / best[1] * 1e9, "measured")


def _plan(lanes: int) -> GraphPlan:
    count = _COPIED_BYTES // 16
    pointer, number = KernelArgument("source", "pointer", "float4*"), "uint"
    copy = KernelSpec(
        "roofline_copy",
        _WORKGROUP,
        0,
        (
            pointer,
            KernelArgument("target", "pointer", "float4*"),
            KernelArgument("count", "u32", number),
        ),
    )
    multiply_add = KernelSpec(
        "roofline_multiply_add",
        _WORKGROUP,
        0,
        (
            KernelArgument("target", "pointer", "float4*"),
            KernelArgument("factor", "f32", "float"),
        ),
    )
    groups = -(-count // _WORKGROUP)
    return GraphPlan(
        name="roofline",
        slang=render(
            "roofline.slang.j2", workgroup_size=_WORKGROUP, chains=_CHAINS, rounds=_ROUNDS
        ),
        inputs=("source",),
        symbols=(),
        scalars=(),
        arena=(),
        outputs=(
            OutputBuffer("copy", "float32", (4 * count,), (1,)),
            OutputBuffer("sums", "float32", (4 * lanes,), (1,)),
        ),
        kernels=(copy, multiply_add),
        steps=(
            Dispatch(
                copy.name,
                (groups, 1, 1),
                (Operand(buffer="source"), Operand(buffer="copy"), Operand(value=count)),
                ("source",),
                ("copy",),
            ),
            Dispatch(
                multiply_add.name,
                (lanes // _WORKGROUP, 1, 1),
                # 1.0f, by its bits: the compiler must not know it.
                (Operand(buffer="sums"), Operand(value=0x3F800000)),
                (),
                ("sums",),
            ),
        ),
    )
