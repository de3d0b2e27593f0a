"""Batches of matrices: one leading dimension for kernels, any number of them for users.

In: torch tensors whose last two dimensions are matrices. Out: torch tensors. Forbidden: arithmetic.
"""

from __future__ import annotations

import math

import torch

from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.complex_table import join


def flat(x: torch.Tensor, core: int = 2) -> torch.Tensor:
    """All dimensions but the last `core` made one."""
    if x.dim() == core + 1:
        return x  # sizes that are expressions of symbols need no proof then
    return x.reshape(math.prod(x.shape[: x.dim() - core]), *x.shape[x.dim() - core :])


def unflat(x: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """The first dimension taken apart into the batch dimensions."""
    return x if len(batch) == 1 else x.reshape((*batch, *x.shape[1:]))


def in_memory(x: torch.Tensor) -> torch.Tensor:
    """A batch of matrices as kernels read it: a complex element is a last dimension of 2."""
    return torch.view_as_real(x) if x.dtype.is_complex else x


def from_memory(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What a kernel wrote, as elements of `like`'s dtype: the inverse of `in_memory`."""
    return join((x[..., 0], x[..., 1])) if like.dtype.is_complex else x


def require_floating(name: str, *tensors: torch.Tensor) -> None:
    """Refuse dtypes that no matrix kernel computes with.

    Raises:
        UnsupportedOperatorError: for half precision and integers.
    """
    for x in tensors:
        if x.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
            raise UnsupportedOperatorError(name, dtype=x.dtype, shape=x.shape)


def require_real(name: str, *tensors: torch.Tensor) -> None:
    """Refuse dtypes the matrix kernels do not compute with.

    Raises:
        UnsupportedOperatorError: for anything but float32 and float64.
    """
    for x in tensors:
        if x.dtype not in (torch.float32, torch.float64):
            raise UnsupportedOperatorError(name, dtype=x.dtype, shape=x.shape)


def batched_alike(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Matrices with their batch dimensions broadcast to a common shape."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    return [x if x.shape[:-2] == batch else x.expand(*batch, *x.shape[-2:]) for x in tensors]


class Record:
    """What a kernel wrote for a batch of matrices, taken apart from its beginning.

    Args:
        values: (matrix count, real numbers per matrix).
        batch: the batch dimensions that the parts get.
    """

    def __init__(self, values: torch.Tensor, batch: torch.Size) -> None:
        self._values, self._batch, self._at = values, batch, 0

    def take_elements(self, like: torch.Tensor, *shape: int) -> torch.Tensor:
        """The next elements of `like`'s dtype, pairs of numbers where that is complex."""
        pair = (2,) if like.dtype.is_complex else ()
        return from_memory(self.take(*shape, *pair), like)

    def take(self, *shape: int) -> torch.Tensor:
        """The next numbers as a tensor (batch, *shape)."""
        count = math.prod(shape)
        part = self._values[:, self._at : self._at + count]
        self._at += count
        return unflat(part.reshape((part.shape[0], *shape)), self._batch)

    def take_whole(self, *shape: int) -> torch.Tensor:
        """The next numbers as int32."""
        return self.take(*shape).to(torch.int32)
