"""inspect(): what a model became, told truly; the command complains clearly and leaves no half-written file."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchvk_compile
from torchvk_compile import cli
from torchvk_compile.device import physical
from torchvk_compile.errors import UnsupportedOperatorError, UsageError, VulkanError
from torchvk_compile.inspection import target
from torchvk_compile.inspection.disassembly import slang_of_kernels
from torchvk_compile.inspection.model import Graph, Inspection

_PROGRAM = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)

    def forward(self, x):
        return torch.relu(self.up(x)).sum(1)


def build():
    model = torch.compile(Net().to("vk"), backend="torchvk")
    return model, (torch.randn(8, 16, device="vk"),)


def inputs_alone():
    return build()[1]


def host_alone():
    return (lambda: 3), ()


def broken():
    raise ValueError("nothing to build")


def wrong_shape():
    return build()[0], (torch.randn(8, 17, device="vk"),)


def unsupported():
    return torch.compile(torch.linalg.eigvals, backend="torchvk"), (torch.eye(3, dtype=torch.complex64, device="vk"),)


number = 3
"""


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 10)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.dropout(self.norm(x))
        return self.head(h).log_softmax(-1)


@pytest.fixture(scope="module")
def net(vk: torch.device) -> Any:
    torch.manual_seed(0)
    return torch.compile(_Net().to(vk), backend="torchvk")


@pytest.fixture(scope="module")
def inspection(net: Any, vk: torch.device) -> Inspection:
    return torchvk_compile.inspect(net, torch.randn(64, 32, device=vk), runs=2)


def _graph(inspection: Inspection, phase: str) -> Graph:
    (graph,) = (g for g in inspection.reports[0].graphs if g.phase == phase)
    return graph


def test_kernels_know_operators_sources_bytes_and_operations(inspection: Inspection) -> None:
    forward = _graph(inspection, "forward")
    product = next(step for step in forward.steps if "aten.addmm" in step.operators)
    assert "head" in product.modules
    assert product.read_bytes == 4 * (64 * 32 + 32 * 10 + 10)
    assert product.written_bytes == 4 * 64 * 10
    assert product.flops == 2 * 64 * 32 * 10
    lines = {forward.sources[i].code for i in product.sources}
    assert "return self.head(h).log_softmax(-1)" in lines
    source = forward.sources[product.sources[0]]
    assert Path(source.file).name == Path(__file__).name
    assert dict(source.context)[source.line].strip() == source.code
    backward = _graph(inspection, "backward")
    assert any("aten.native_batch_norm_backward" in step.operators for step in backward.steps)


def test_times_and_roofline(inspection: Inspection) -> None:
    (report,) = inspection.reports
    assert report.executed
    assert report.roof is not None and report.roof.source == "measured"
    for graph in report.graphs:
        assert graph.calls == 1
        for step in graph.steps:
            assert step.time_ns is not None and step.time_ns >= 0
            nbytes = step.read_bytes + step.written_bytes
            assert step.bound_ns == pytest.approx(1e9 * report.roof.seconds(nbytes, step.flops))


def test_sources_of_every_kernel(inspection: Inspection) -> None:
    for graph in inspection.reports[0].graphs:
        assert {step.kernel for step in graph.steps} == {kernel.name for kernel in graph.kernels}
        for kernel in graph.kernels:
            assert kernel.slang.count('[shader("compute")]') == 1
            assert f"void {kernel.name}(" in kernel.slang
            assert f"numthreads({kernel.workgroup_size}, 1, 1)" in kernel.slang
            if shutil.which("spirv-dis"):
                assert f'OpEntryPoint GLCompute %{kernel.name} "{kernel.name}"' in kernel.spirv
                assert kernel.spirv.rstrip().endswith("OpFunctionEnd")


def test_memory_plan(inspection: Inspection) -> None:
    for graph in inspection.reports[0].graphs:
        blocks = [b for b in graph.buffers if b.kind == "arena"]
        assert not graph.steps[0].barrier
        for block in blocks:
            assert block.offset is not None and block.nbytes is not None
            assert block.offset + block.nbytes <= graph.arena_bytes
        touched = {name for step in graph.steps for name in (*step.reads, *step.writes)}
        assert touched == {buffer.name for buffer in graph.buffers}


def test_state_is_as_before(net: Any, vk: torch.device) -> None:
    x = torch.randn(64, 32, device=vk)
    before = {name: value.cpu() for name, value in net.state_dict().items()}
    generator = torch.vk.get_rng_state()  # type: ignore[attr-defined]
    torchvk_compile.inspect(net, x, runs=1)
    assert torch.equal(torch.vk.get_rng_state(), generator)  # type: ignore[attr-defined]
    for name, value in net.state_dict().items():
        assert torch.equal(value.cpu(), before[name]), name
    assert all(parameter.grad is None for parameter in net.parameters())


def test_dynamic_sizes_are_those_of_the_inputs(vk: torch.device) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="torchvk", dynamic=True)
    (report,) = torchvk_compile.inspect(compiled, torch.ones(5, 7, device=vk), runs=1).reports
    (graph,) = report.graphs
    assert sorted(graph.symbols.values()) == [5, 7]
    assert graph.steps[0].flops == 2 * 35


def test_a_backward_pass_inside_the_callable_is_one(net: Any, vk: torch.device) -> None:
    def training_step(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).sum()
        loss.backward()
        return loss.detach()

    (report,) = torchvk_compile.inspect(
        training_step, torch.randn(64, 32, device=vk), runs=1
    ).reports
    net.zero_grad()
    phases: dict[str, set[str]] = {}
    for graph in report.graphs:
        operators = {name for step in graph.steps for name in step.operators}
        phases.setdefault(graph.phase, set()).update(operators)
    assert {name for name in phases["backward"] if "backward" in name}
    assert not {name for name in phases["forward"] if "backward" in name}


def test_json_round_trip(inspection: Inspection, tmp_path: Path) -> None:
    target = tmp_path / "inspection.json"
    inspection.write_json(target)
    data = json.loads(target.read_text())
    assert Inspection.from_dict(data) == inspection
    with pytest.raises(ValueError, match="another version"):
        Inspection.from_dict(data | {"format": 0})


def test_tables_name_operators_and_lines(inspection: Inspection) -> None:
    text = inspection.text(width=150)
    assert "forward: " in text and "backward: " in text
    assert re.search(rf"addmm.* {Path(__file__).name}:\d+", text)


def test_misuse_is_named(vk: torch.device) -> None:
    x = torch.ones(3, device=vk)
    with pytest.raises(UsageError, match="ran nothing on a vk device"):
        torchvk_compile.inspect(lambda: None)
    with pytest.raises(UsageError, match="runs=0"):
        torchvk_compile.inspect(torch.compile(torch.neg, backend="torchvk"), x, runs=0)
    with pytest.raises(UnsupportedOperatorError, match="eig"):
        compiled = torch.compile(torch.linalg.eigvals, backend="torchvk")
        torchvk_compile.inspect(compiled, torch.eye(3, dtype=torch.complex64, device=vk))


def test_slang_is_divided_between_kernels() -> None:
    module = (
        "import a;\nstatic const bool ALIGNED = true;\n\n// first\nvoid one()\n{\n}\n\n"
        "// second\nstruct two_Arguments\n{\n};\nvoid two()\n{\n    if (true)\n    {\n    }\n}\n"
    )
    parts = slang_of_kernels(module, ["two", "one"])
    assert parts["one"] == "// first\nvoid one()\n{\n}"
    assert parts["two"].startswith("// second\n") and parts["two"].endswith("    }\n}")


# The page


class _Page(HTMLParser):
    """Collects the page's data and everything it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.data, self.fetched, self.open = "", [], ""
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.fetched += [found[name] for name in ("src", "href") if name in found]
        self.ids.add(found.get("id") or "")
        self.open = found.get("id") or tag

    def handle_data(self, data: str) -> None:
        if self.open == "data":
            self.data += data

    def handle_endtag(self, tag: str) -> None:
        self.open = ""


@pytest.fixture(scope="module")
def page(inspection: Inspection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "inspection.html"
    inspection.write_html(target)
    return target


def test_page_needs_nothing_else(inspection: Inspection, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = _Page()
    found.feed(text)
    assert found.fetched == []
    assert "@import" not in text and "url(" not in text
    assert Inspection.from_dict(json.loads(found.data)) == inspection
    assert {"graph", "detail", "memory", "table"} <= found.ids


def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    pytest.skip("no Chromium is installed (Debian: chromium)")


_REPORT = """<script>
const wide = [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, pre, .tabs, svg"))
  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.className || e.tagName);
document.body.dataset.wide = wide.join(" ");
document.body.dataset.size = innerWidth;
document.body.dataset.ground = getComputedStyle(document.body).backgroundColor;
document.body.dataset.failed = window.failed ?? "";
</script>"""


def _look(page: Path, width: int, scheme: str) -> tuple[str, dict[str, str]]:
    """The page's elements after its scripts ran, and what it says of its own layout."""
    watched = page.with_name(f"watched-{width}-{scheme}.html")
    text = page.read_text(encoding="utf-8")
    text = text.replace("<head>", "<head><script>onerror = (m) => { failed = m; };</script>", 1)
    watched.write_text(text.replace("</body>", f"{_REPORT}</body>"), encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    blink = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    window = f"--window-size={width},900"
    done = subprocess.run(
        [_chromium(), *options, blink, window, "--dump-dom", watched.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    body = re.search(r"<body[^>]*>", done.stdout)
    assert body is not None, done.stdout[:500]
    return done.stdout, dict(re.findall(r'data-(\w+)="([^"]*)"', body[0]))


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_in_a_browser(inspection: Inspection, page: Path, width: int, scheme: str) -> None:
    elements, seen = _look(page, width, scheme)
    assert seen["failed"] == ""
    assert seen["wide"] == "", f"wider than a window of {seen['size']} pixels"
    red, green, blue = map(int, re.findall(r"\d+", seen["ground"])[:3])
    assert (red + green + blue < 150) == (scheme == "dark")
    steps = _graph(inspection, "forward").steps
    assert elements.count('class="box"') == len(steps)
    assert elements.count("data-row=") == len(steps)
    assert "log_softmax" in elements
    assert elements.count('class="barrier"') == sum(step.barrier for step in steps)
    assert elements.count('class="submission"') == 2


def test_many_graphs_are_a_list(inspection: Inspection, page: Path) -> None:
    (report,) = inspection.reports
    many = dataclasses.replace(report, graphs=report.graphs * 4)
    long_page = page.with_name("many.html")
    dataclasses.replace(inspection, reports=(many,)).write_html(long_page)
    elements, seen = _look(long_page, 390, "light")
    assert seen["failed"] == "" and seen["wide"] == ""
    assert len(re.findall(r"<option[^>]*>(?:Forward|Backward) \d · .*?dispatch", elements)) == 8


# The command


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "inspected_program.py"
    path.write_text(_PROGRAM)
    return path


def test_command_writes_page_and_data(
    program: Path, vk: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    html, data = program.with_name("out.html"), program.with_name("out.json")
    arguments = ["inspect", f"{program}:build", "--html", str(html), "--json", str(data)]
    assert cli.main([*arguments, "--runs", "1"]) == 0
    assert "addmm" in capsys.readouterr().out
    inspection = Inspection.from_dict(json.loads(data.read_text()))
    assert [graph.phase for graph in inspection.reports[0].graphs] == ["forward", "backward"]
    assert html.read_text().startswith("<!doctype html>")


def test_command_compiles_for_a_card_that_is_not_there(program: Path, vk: torch.device) -> None:
    try:
        target.find_target("navi10")
    except torchvk_compile.errors.TorchVKError as error:
        pytest.skip(str(error))
    html, data = program.with_name("out.html"), program.with_name("out.json")
    arguments = ["inspect", f"{program}:build", "--html", str(html), "--json", str(data)]
    assert cli.main([*arguments, "--target", "navi10", "--runs", "1", "--quiet"]) == 0
    here, card = Inspection.from_dict(json.loads(data.read_text())).reports
    assert here.executed and not card.executed
    assert "RX 5600 XT" in card.device
    assert [graph.phase for graph in card.graphs] == ["forward", "backward"]
    for graph in card.graphs:
        for kernel in graph.kernels:
            assert kernel.statistics["VGPRs"] > 0
            assert kernel.statistics["Subgroups per SIMD"] > 0
            assert kernel.statistics["Spilled VGPRs"] == 0
            assert kernel.statistics["LDS size"] <= 32 * 1024
            assert "s_endpgm" in kernel.isa
        assert all(step.time_ns is None and step.bound_ns for step in graph.steps)
    assert "s_endpgm" in html.read_text()
    tables = Inspection("", {}, (card,)).text()
    assert "least µs" in tables and "roofline  " not in tables


@pytest.mark.parametrize(
    ("subject", "status", "message"),
    [
        ("inspected_program.py", 2, "is not of the form SCRIPT_OR_MODULE:CALLABLE"),
        ("nowhere.py:build", 2, "there is no such file"),
        ("no_such_module:build", 2, "there is no module no_such_module"),
        ("inspected_program.py:biuld", 2, "has no biuld; did you mean build?"),
        ("inspected_program.py:number", 2, "is an object of type int, which cannot be called"),
        ("inspected_program:inputs_alone", 2, "must return (compiled model, its inputs)"),
        ("inspected_program.py:broken", 1, "raised ValueError: nothing to build"),
        ("inspected_program.py:wrong_shape", 1, "same reduction dim"),
        ("inspected_program.py:wrong_shape", 1, "inspected_program.py:11)"),
        ("inspected_program.py:host_alone", 2, "ran nothing on a vk device"),
        ("inspected_program.py:unsupported", 1, "no GPU kernel for aten"),
    ],
)
def test_bad_subjects(
    subject: str,
    status: int,
    message: str,
    program: Path,
    vk: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(program.parent)
    # torch's log may still write to the standard error of an earlier test.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    before = {path.name for path in program.parent.iterdir()} | {"__pycache__"}
    assert cli.main(["inspect", subject, "--html", "out.html", "--json", "out.json"]) == status
    complaint = [line for line in capsys.readouterr().err.splitlines() if "USDT" not in line]
    assert len(complaint) == 1, complaint
    assert complaint[0].startswith("torchvk inspect: ")
    assert message in complaint[0]
    assert {path.name for path in program.parent.iterdir()} <= before


def test_bad_targets(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", f"{program}:build", "--target", "navi99"]) == 2
    assert "there is no such target; known: navi10" in capsys.readouterr().err
    monkeypatch.setattr(target, "_DRIVER_DIRECTORIES", (str(program.parent),))
    assert cli.main(["inspect", f"{program}:build", "--target", "navi10"]) == 1
    assert "is not installed (Debian: mesa-vulkan-drivers)" in capsys.readouterr().err


def test_a_target_that_fails_leaves_no_files(
    program: Path, vk: torch.device, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    driver = program.with_name("radeon_icd.json")
    driver.write_text("{}")
    monkeypatch.setattr(target, "_DRIVER_DIRECTORIES", (str(program.parent),))
    html = program.with_name("out.html")
    arguments = ["inspect", f"{program}:build", "--html", str(html), "--runs", "1"]
    assert cli.main([*arguments, "--target", "navi10"]) == 1
    assert "torchvk inspect: --target navi10: " in capsys.readouterr().err
    assert not html.exists()


def test_missing_device(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(index: int = 0) -> Any:
        raise VulkanError("no usable Vulkan device")

    monkeypatch.setattr(physical, "profile", none)
    assert cli.main(["inspect", f"{program}:build"]) == 1
    assert capsys.readouterr().err == "torchvk inspect: no usable Vulkan device\n"


@pytest.mark.parametrize("option", ["--html", "--json"])
def test_unwritable_paths(option: str, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (program / "out", program.parent):
        assert cli.main(["inspect", f"{program}:build", option, str(path)]) == 2
        assert f"cannot write {path}" in capsys.readouterr().err
