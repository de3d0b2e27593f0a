"""Sparse tensors are refused by name; nothing ends in torch's own complaints about a missing backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchvk_compile.errors import UnsupportedOperatorError

CALLS: dict[str, Callable[[torch.device], object]] = {
    "coordinates": lambda vk: torch.eye(3).to_sparse().to(vk),
    "to_sparse": lambda vk: torch.eye(3).to(vk).to_sparse(),
    "rows": lambda vk: torch.eye(3).to_sparse_csr().to(vk) @ torch.eye(3).to(vk),
    "sampled": lambda vk: torch.sparse.sampled_addmm(
        torch.eye(3).to_sparse_csr().to(vk), torch.eye(3).to(vk), torch.eye(3).to(vk)
    ),
    "compiled": lambda vk: torch.compile(lambda x: x.to_sparse(), backend="torchvk")(
        torch.eye(3).to(vk)
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("name", CALLS)
def test_sparse_tensors_are_refused(vk: torch.device, name: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="aten"):
        CALLS[name](vk)
    assert torch.ones(2, device=vk).sum().item() == 2


def test_embeddings_with_sparse_gradients(vk: torch.device) -> None:
    weight, index = torch.randn(5, 3), torch.tensor([1, 4, 1])
    placed = weight.to(vk).requires_grad_()
    rows = torch.nn.functional.embedding(index.to(vk), placed, sparse=True)
    torch.testing.assert_close(rows.detach().cpu(), weight[index])
    with pytest.raises(UnsupportedOperatorError):
        rows.sum().backward()
