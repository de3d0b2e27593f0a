"""A plan survives its serialised form, and knows the layout of its kernels' arguments."""

from __future__ import annotations

import pytest

from torchvk_compile.plan.graph_plan import (
    PLAN_VERSION,
    ArenaBuffer,
    Dispatch,
    GraphPlan,
    HostScalar,
    KernelArgument,
    KernelSpec,
    Operand,
    OutputBuffer,
)


def _plan() -> GraphPlan:
    arguments = (
        KernelArgument("in_ptr0", "pointer", "float*"),
        KernelArgument("base", "i64", "int64_t"),
        KernelArgument("xnumel", "i32", "int"),
        KernelArgument("scale", "f32", "float"),
    )
    operands = (
        Operand(buffer="x"),
        Operand(value=3),
        Operand(value="4*s0"),
        Operand(scalar="scalar0"),
    )
    return GraphPlan(
        name="graph",
        slang="// nothing",
        inputs=("x",),
        symbols=("s0",),
        scalars=(HostScalar("scalar0", "float32"),),
        arena=(ArenaBuffer("buf0", "16*s0", 0, 1),),
        outputs=(OutputBuffer("buf1", "float32", ("s0", 4), (4, 1)),),
        kernels=(KernelSpec("add_0", 256, 32, arguments, "aten.add"),),
        steps=(Dispatch("add_0", ("s0 // 2", 1, 1), operands, ("x",), ("buf0",)),),
        fingerprint="abc",
    )


def test_json_round_trip() -> None:
    plan = _plan()
    assert GraphPlan.from_json(plan.to_json(), plan.slang) == plan


def test_a_plan_of_another_version_is_refused() -> None:
    text = _plan().to_json().replace(f'"version": {PLAN_VERSION}', '"version": 0')
    with pytest.raises(ValueError, match="another version"):
        GraphPlan.from_json(text, "")


def test_expressions_are_listed_once() -> None:
    assert _plan().expressions() == ("16*s0", "s0", "s0 // 2", "4*s0")


def test_arguments_are_laid_out_by_their_alignment() -> None:
    (kernel,) = _plan().kernels
    assert kernel.argument_offsets() == (0, 8, 16, 20)
    assert kernel.argument_bytes == 32
