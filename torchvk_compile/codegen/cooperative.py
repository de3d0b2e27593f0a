"""Cooperative matrices: what a whole subgroup multiplies at once, and tiles of products made of them.

In: the device's profile, a dtype. Out: a `Fragment`, `CooperativeConfig`s that the device can run. Forbidden: choosing
one of them, emitting code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from torchvk_compile.codegen.layout import reduction_subgroup

_ELEMENTS = {torch.float16: "half", torch.bfloat16: "BFloat16"}
VECTOR = 8
"""Elements of 16 bits that move at once."""


@dataclasses.dataclass(frozen=True)
class Fragment:
    """Matrices that a subgroup multiplies by one instruction: (m, k) times (k, n), summed in float32.

    Attributes:
        m, n, k: sizes.
        element: Slang type of what is multiplied.
        lanes: invocations of the subgroup, which the kernel has to demand.
    """

    m: int
    n: int
    k: int
    element: str
    lanes: int


@dataclasses.dataclass(frozen=True)
class CooperativeConfig:
    """How a workgroup computes its tile of a product with cooperative matrices.

    Attributes:
        fragment: what its subgroups multiply.
        block_m, block_n: rows and columns of a workgroup.
        subgroup_m, subgroup_n: of one subgroup.
        block_k: how much of K is in shared memory at a time.
        products: 1, or 3 where each float32 operand is a sum of two bfloat16 numbers.
        split_k: workgroups that share one output tile, each with its part of K.
    """

    fragment: Fragment
    block_m: int
    block_n: int
    subgroup_m: int
    subgroup_n: int
    block_k: int
    products: int = 1
    split_k: int = 1

    def __str__(self) -> str:
        products = f", {self.products} products" if self.products > 1 else ""
        split = f", split {self.split_k}" if self.split_k > 1 else ""
        return (
            f"cooperative {self.block_m}x{self.block_n}, {self.subgroup_m}x{self.subgroup_n} a subgroup, "
            f"{self.block_k} of K{products}{split}"
        )

    @property
    def workgroup_size(self) -> int:
        subgroups = self.block_m // self.subgroup_m * (self.block_n // self.subgroup_n)
        return subgroups * self.fragment.lanes

    def tiles(self, batch: int, m: int, n: int) -> int:
        """Workgroups without splitting K."""
        return batch * -(-m // self.block_m) * -(-n // self.block_n)

    def shared_bytes(self) -> int:
        """Shared memory of one workgroup, in bytes, with operands of the layout that takes most."""
        padded_k = self.block_k + VECTOR
        parts = 2 if self.products > 1 else 1
        rows_of_k = (self.block_m + self.block_n) * padded_k
        rows_along = (self.block_m + self.block_n + 2 * VECTOR) * self.block_k
        subgroups = self.workgroup_size // self.fragment.lanes
        strips = subgroups * self.fragment.m * (2 * self.fragment.n + 4) * 4
        return max(2 * parts * max(rows_of_k, rows_along), strips)

    def fits(self, profile: Any) -> bool:
        """Whether the device has the memory and the invocations, and every one of these the same work."""
        fragment, threads = self.fragment, self.workgroup_size
        return (
            self.subgroup_m % fragment.m == self.subgroup_n % fragment.n == 0
            and self.block_k % fragment.k == 0
            and self.block_m * self.block_k % (VECTOR * threads) == 0
            and self.block_n * self.block_k % (VECTOR * threads) == 0
            and threads <= profile.max_workgroup_invocations
            and self.shared_bytes() <= profile.shared_memory_bytes
        )


def fragment_of(profile: Any, dtype: torch.dtype) -> Fragment | None:
    """The matrices of `dtype` that a subgroup of the device multiplies, summed in float32.

    None where the device has none, or where its subgroups cannot be pinned to one size.

    Args:
        profile: the device's `DeviceProfile`.
        dtype: of both operands.
    """
    lanes = reduction_subgroup(profile)
    if lanes == 1 or not profile.memory_model:
        return None
    name = str(dtype).removeprefix("torch.")
    shapes = [
        (shape["m"], shape["n"], shape["k"])
        for shape in profile.cooperative_matrix_shapes
        if (shape["a"], shape["b"], shape["c"]) == (name, name, "float32")
        # Fragments begin and end where vectors of shared memory do.
        and shape["m"] % VECTOR == shape["n"] % VECTOR == shape["k"] % VECTOR == 0
    ]
    if dtype not in _ELEMENTS or not shapes:
        return None
    # Square ones need the fewest loads per product.
    m, n, k = max(shapes, key=lambda shape: (min(shape), -max(shape)))
    return Fragment(m, n, k, _ELEMENTS[dtype], lanes)
