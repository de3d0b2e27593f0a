"""The audit's source lines and its certificate, on the device."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import torchvk_compile
from torchvk_compile.audit.trail import Entry
from torchvk_compile.errors import NotGpuOnlyError


def of_kind(entries: list[Entry], kind: str) -> list[Entry]:
    """Those of one kind that the program asked for; the first compilation has transfers of its own."""
    return [entry for entry in entries if entry.kind == kind and entry.what != "while compiling"]


def test_eager_operators_and_transfers_name_their_line(vk: torch.device) -> None:
    with torchvk_compile.audit() as audit:
        x = torch.ones(8).to(vk)  # upload
        for _ in range(3):
            y = x.sinh()  # kernels
        y.clone()  # copy
        y.zero_()  # fill
        y.tolist()  # download
    entries = audit.entries()
    for kind, code, count in (
        ("upload", "x = torch.ones(8).to(vk)  # upload", 1),
        ("dispatch", "y = x.sinh()  # kernels", 3),
        ("copy", "y.clone()  # copy", 1),
        ("fill", "y.zero_()  # fill", 1),
        ("download", "y.tolist()  # download", 1),
    ):
        (entry,) = of_kind(entries, kind)
        assert (entry.code, entry.count) == (code, count)
        assert "test_audit_lines.py:" in entry.place
    assert of_kind(entries, "dispatch")[0].what == "aten.sinh"
    assert of_kind(entries, "upload")[0].nbytes == 32


def test_lines_of_a_compiled_graph_are_those_of_its_operators(vk: torch.device) -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)  # inside the graph

    compiled = torch.compile(lambda x: first(x) * 2, backend="torchvk")
    x = torch.ones(4, 8, device=vk)
    compiled(x)
    with torchvk_compile.audit() as audit:
        compiled(x)
    (entry,) = of_kind(audit.entries(), "dispatch")
    assert "aten.sum" in entry.what
    assert "return x.sum(1)  # inside the graph" in entry.code
    assert entry.count == audit.dispatches == 1


def test_eager_backward_names_the_line_that_waits_for_it(vk: torch.device) -> None:
    x = torch.ones(8, device=vk, requires_grad=True)
    loss = x.sinh().sum()
    loss.backward(retain_graph=True)
    with torchvk_compile.audit() as audit:
        loss.backward()
    found = of_kind(audit.entries(), "dispatch")
    assert {entry.code for entry in found} == {"loss.backward()"}


def test_every_dispatch_and_transfer_has_an_entry(vk: torch.device) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(vk)
    compiled = torch.compile(model, backend="torchvk")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torchvk_compile.audit() as audit:
        for _ in range(2):
            loss = compiled(torch.ones(5, 8).to(vk)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    entries = audit.entries()
    assert sum(entry.count for entry in of_kind(entries, "dispatch")) == audit.dispatches
    uploads = [entry for entry in entries if entry.kind == "upload"]
    assert sum(entry.count for entry in uploads) == audit.uploads
    assert sum(entry.nbytes for entry in uploads) == audit.uploaded_bytes
    assert all(entry.place for entry in entries)


def test_fallback_names_its_line(vk: torch.device) -> None:
    x = torch.eye(3, dtype=torch.complex64, device=vk)
    with torchvk_compile.config.patch(cpu_fallback="allow"), torchvk_compile.audit() as audit:
        torch.linalg.eig(x)  # on the CPU
    (entry,) = of_kind(audit.entries(), "cpu")
    assert entry.what == "aten.linalg_eig"
    assert entry.code == "torch.linalg.eig(x)  # on the CPU"
    assert "Computed on the CPU" in audit.report()
    with pytest.raises(NotGpuOnlyError, match=r"linalg_eig.* first at .*lines.py:"):
        audit.certificate()


def test_nothing_is_recorded_outside(vk: torch.device) -> None:
    with torchvk_compile.audit() as audit:
        pass
    torch.ones(3, device=vk).sinh()
    assert audit.entries() == []
    with pytest.raises(NotGpuOnlyError, match="nothing ran on a vk device"):
        audit.certificate()


def test_certificate_states_where_with_what_and_how_much(vk: torch.device) -> None:
    x = torch.ones(8, device=vk)

    def certificate() -> dict[str, object]:
        with torchvk_compile.audit() as audit:
            x.sinh()
        return json.loads(audit.certificate().to_json())

    first, second = certificate(), certificate()
    assert first == second
    assert first["gpu_only"] is True
    assert first["shaders"] == 1
    assert first["counts"]["dispatches"] == 1
    assert first["versions"]["torch"] == torch.__version__
    (device,) = first["devices"]
    assert device["name"] == torch.vk.get_device_name(vk)
    with torchvk_compile.audit() as audit:
        x.cosh()
    assert audit.certificate().shader_hash != first["shader_hash"]


def test_report_fits_its_width(vk: torch.device) -> None:
    with torchvk_compile.audit() as audit:
        (torch.ones(8).to(vk).sinh() + torch.ones(8).to(vk)).tolist()
    for width in (60, 100):
        assert all(len(line) <= width for line in audit.report(width).splitlines()[6:])
