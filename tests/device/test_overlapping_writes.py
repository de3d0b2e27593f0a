"""Writes to memory that the same call reads: allowed and refused as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

Call = Callable[[torch.Tensor], torch.Tensor]

REFUSED: dict[str, Call] = {
    "transposed": lambda x: x.add_(x.t()),
    "shifted copy": lambda x: x[1:].copy_(x[:-1]),
    "shifted product": lambda x: x[1:].mul_(x[:-1]),
    "shifted out": lambda x: torch.add(x[:-1], 1, out=x[1:]),
    "ternary": lambda x: x[1:].addcmul_(x[:-1], x[1:]),
    "where": lambda x: torch.where(x[1:] > 0, x[1:], x[:-1], out=x[1:]),
    "scan": lambda x: torch.cumsum(x[:-1], 0, out=x[1:]),
    "clamp": lambda x: x[1:].clamp_(min=x[:-1]),
    "foreach": lambda x: torch._foreach_add_([x[1:]], [x[:-1]]),
    "index_add": lambda x: x.index_add_(0, torch.tensor([0, 1, 2], device=x.device), x),
    "index_put": lambda x: x.index_put_((torch.tensor([0, 1, 2], device=x.device),), x),
    "gather": lambda x: torch.gather(x, 0, torch.zeros_like(x, dtype=torch.long), out=x),
    "expanded": lambda x: x[:1].expand(3, 3).add_(1),
    "expanded out": lambda x: torch.mul(x, 2, out=x[:1].expand(3, 3)),
}
ALLOWED: dict[str, Call] = {
    "itself": lambda x: x.add_(x),
    "itself as out": lambda x: torch.mul(x, x, out=x),
    "another view of the same": lambda x: x.view(9).add_(x.view(9)),
    "neighbours": lambda x: x[0].add_(x[1]),
    "columns": lambda x: x[:, 0].add_(x[:, 1]),
    "copy to itself": lambda x: x.copy_(x),
    "sort into itself": lambda x: torch.sort(x, out=(x, torch.empty_like(x, dtype=torch.long)))[0],
}


def matrix(device: torch.device | str) -> torch.Tensor:
    return torch.arange(9.0, device=device).view(3, 3)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_on_the_cpu(name: str, vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        REFUSED[name](matrix("cpu"))
    x = matrix(vk)
    with pytest.raises(RuntimeError, match=r"single memory location. Please clone\(\)"):
        REFUSED[name](x)
    assert torch.equal(x.cpu(), matrix("cpu"))


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_as_on_the_cpu(name: str, vk: torch.device) -> None:
    here, there = matrix("cpu"), matrix(vk)
    torch.testing.assert_close(ALLOWED[name](there).cpu(), ALLOWED[name](here))
    torch.testing.assert_close(there.cpu(), here)


def test_compiled_graphs_read_before_they_write(vk: torch.device) -> None:
    x = matrix(vk)
    torch.compile(lambda x: x.add_(x.t()), backend="torchvk")(x)
    torch.testing.assert_close(x.cpu(), matrix("cpu") + matrix("cpu").t())
