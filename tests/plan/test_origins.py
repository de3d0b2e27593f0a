"""Origins survive a plan's serialised form, share their frames there, and find lines that moved."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from torchvk_compile.codegen.origins import frames_of
from torchvk_compile.plan.origins import Frame, Origin, origins_from_data, origins_to_data

_TRACE = f"""\
  File "model.py", line 30, in forward
    y = self.block(x)
        ^^^^^^^^^^^^^
  File "{os.path.dirname(torch.__file__)}/nn/functional.py", line 12, in relu
    return torch.relu(input)
  File "block.py", line 7, in torch_dynamo_resume_in_forward_at_5
    return x.relu()
"""


def test_round_trip_writes_shared_frames_once() -> None:
    inner, outer = Frame("m.py", 3, "forward", "return x + 1"), Frame("m.py", 9, "call", "f(x)")
    origins = (
        Origin("add", "aten.add.Tensor", "", "block.0", "f32[8]", ("x", "y"), (inner, outer)),
        Origin("mul", "aten.mul.Tensor", "aten.gelu.default", frames=(inner, outer)),
        Origin("seeds", "prims.inductor_seeds.default"),
    )
    data = origins_to_data(origins)
    assert len(data["frames"]) == 2
    assert len(data["stacks"]) == 2
    assert origins_from_data(data) == origins


def test_frames_of_a_trace_are_the_users_own_innermost_first() -> None:
    assert frames_of(_TRACE) == (
        Frame("block.py", 7, "forward", "return x.relu()"),
        Frame("model.py", 30, "forward", "y = self.block(x)"),
    )
    assert frames_of("") == ()


def test_a_trace_inside_torch_alone_keeps_its_innermost_frame() -> None:
    only_torch = "\n".join(_TRACE.splitlines()[3:5]) + "\n"
    (frame,) = frames_of(only_torch)
    assert frame.code == "return torch.relu(input)"


def test_a_line_is_found_again_after_an_edit(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("a = 1\nb = 2\n")
    frame = Frame(str(file), 2, "<module>", "b = 2")
    assert frame.current_line() == 2
    file.write_text("# a comment\n\na = 1\nb = 2\nc = 3\nd = 4\nb = 2\n")
    assert frame.current_line() == 4
    file.write_text("a = 1\n")
    assert frame.current_line() == 2
    file.unlink()
    assert frame.current_line() == 2
