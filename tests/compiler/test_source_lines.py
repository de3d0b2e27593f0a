"""Every dispatch of a compiled model knows its operators and the model's own lines, also from a cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchvk_compile.plan.executor import loaded_plans
from torchvk_compile.plan.graph_plan import GraphPlan

_PROGRAM = """\
import json

import torch
from torch._dynamo.utils import counters
from torchvk_compile.plan.executor import loaded_plans


def scaled(x, w):
    y = (x @ w).relu()
    return y.sum(1)


x = torch.ones(4, 8, device="vk")
w = torch.ones(8, 16, device="vk", requires_grad=True)
torch.compile(scaled, backend="torchvk")(x, w).backward(torch.ones(4, device="vk"))
lines = {
    (f.file, f.current_line(), f.code)
    for compiled in loaded_plans()
    for origin in compiled.plan.origins
    for f in origin.frames
}
print(json.dumps({"hits": counters["inductor"]["fxgraph_cache_hit"], "lines": sorted(lines)}))
"""


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return torch.sigmoid(y) * x


def _plans(code: str) -> list[GraphPlan]:
    """Loaded plans that come from a line with this text."""
    return [
        compiled.plan
        for compiled in loaded_plans()
        if any(f.code == code for origin in compiled.plan.origins for f in origin.frames)
    ]


def test_forward_and_backward_know_operators_modules_and_lines(vk: torch.device) -> None:
    model = torch.compile(_Block().to(vk), backend="torchvk")
    model(torch.randn(4, 8, device=vk)).backward(torch.ones(4, 8, device=vk))
    plans = _plans("return torch.sigmoid(y) * x")
    assert len(plans) == 2
    for plan in plans:
        assert all(plan.origins_of(step) for step in plan.steps)
    origins = {origin.op: origin for plan in plans for origin in plan.origins}
    assert origins["aten.addmm.default"].module == "layers.0"
    assert origins["aten.addmm.default"].value == "f32[4, 8]"
    assert origins["aten.rsqrt.default"].composite == "aten.native_layer_norm.default"
    assert origins["aten.mm.default"].frames[0].code == "y = self.layers(x)"
    forward = next(p for p in plans if any(o.op == "aten.addmm.default" for o in p.origins))
    known = {origin.node for origin in forward.origins}
    rsqrt = next(o for o in forward.origins if o.op == "aten.rsqrt.default")
    assert set(rsqrt.inputs) <= known


def test_eager_operators_have_operators_and_no_lines(vk: torch.device) -> None:
    _ = torch.ones(3, 5, device=vk).atan2(torch.ones(3, 5, device=vk))
    found = [o for c in loaded_plans() for o in c.plan.origins if o.op == "aten.atan2.default"]
    assert found
    assert not any(origin.frames for origin in found)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    environment = os.environ | {
        "TORCHVK_CACHE_DIR": str(tmp_path / "torchvk"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }

    def run(file: Path, text: str) -> dict[str, Any]:
        file.write_text(text)
        command = [sys.executable, str(file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_lines_come_from_the_cache_and_follow_edits(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    first = run(file, _PROGRAM)
    assert [str(file), 9, "y = (x @ w).relu()"] in first["lines"]
    again = run(file, "# A comment on top.\n" + _PROGRAM)
    assert again["hits"] > 0
    assert [str(file), 10, "y = (x @ w).relu()"] in again["lines"]
    twin = run(tmp_path / "twin.py", _PROGRAM)
    assert {file for file, _, _ in twin["lines"]} == {str(tmp_path / "twin.py")}
