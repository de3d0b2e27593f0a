"""Sparse tensors: the device has no kernels for them, and says so.

In: an operator called with a sparse vk tensor. Out: `UnsupportedOperatorError`. Forbidden: making dense tensors of it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from torchvk_compile.errors import UnsupportedOperatorError

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_LAYOUTS = (torch.sparse_coo, *_COMPRESSED)


def refuse(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> NoReturn:
    """The boxed kernel behind every operator on sparse vk tensors that torch does not compose from dense ones."""
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    sparse = next((x for x in tensors if x.layout in _LAYOUTS), None)
    raise UnsupportedOperatorError(
        str(op),
        dtype=None if sparse is None else sparse.dtype,
        shape=None if sparse is None else tuple(sparse.shape),
        reason="vk tensors are dense; `.to_dense()` on the CPU makes one of this tensor",
    )
