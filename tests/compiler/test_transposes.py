"""Operands that are consecutive along another axis than the kernel: every way to disagree, sizes around the tile's.

In: transposed and permuted tensors. Out: the CPU's results, from squares in shared memory where they pay.
Forbidden: anything but pointwise kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from torchvk_compile.codegen import transposes

Check = Callable[..., None]

_X, _Y, _Z = sympy.symbols("x0 x1 x2", integer=True, nonnegative=True)


class _Axis:
    """What a tile needs of Inductor's iteration range."""

    def __init__(self, divisor: int, length: int) -> None:
        self.divisor, self.length = sympy.Integer(divisor), sympy.Integer(length)


_AXES = {_X: _Axis(1, 64), _Y: _Axis(64, 48), _Z: _Axis(64 * 48, 5)}


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (48 * _X + _Y, transposes.Crossing(64, 64, 48, aligned=True)),
        (48 * _X + _Y + 3072 * _Z, transposes.Crossing(64, 64, 48, aligned=True)),
        (49 * _X + _Y, transposes.Crossing(64, 64, 48, aligned=False)),
        (48 * _X + _Y + 2, transposes.Crossing(64, 64, 48, aligned=False)),
        (5 * _X + _Z, transposes.Crossing(64, 3072, 5, aligned=False)),
        (_X + 64 * _Y, None),
        (_Y, None),
        (-_X + _Y, None),
        (FloorDiv(_X, 2) + _Y, None),
        (48 * _X + 2 * _Y, None),
    ],
)
def test_which_accesses_cross(index: sympy.Expr, expected: transposes.Crossing | None) -> None:
    assert transposes.crossing_of(index, _AXES) == expected


def test_a_tile_is_chosen_where_it_is_mostly_full() -> None:
    numel = sympy.Integer(64 * 48 * 5)
    tile = transposes.choose_tile([48 * _X + _Y, 64 * _Y + _X], _AXES, numel)
    assert tile == transposes.Tile(64, 64, 48, 64 * 48 * 5, 4)
    assert tile.groups == 2 * 2 * 5
    assert transposes.choose_tile([5 * _X + _Z], _AXES, numel) is None


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Squares in shared memory, whatever device this is."""
    monkeypatch.setattr(transposes, "pay", lambda profile: True)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("shape", [(64, 96), (32, 37), (67, 45)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool])
def test_transposes(
    assert_close_like_cpu: Check, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    rows, columns = shape
    x = torch.arange(rows * columns).remainder(101).to(dtype).reshape(rows, columns)
    y = torch.arange(rows * columns).remainder(89).to(dtype).reshape(columns, rows)

    def transposed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t().contiguous(), torch.where(x.t() > y, x.t(), y), x[1:, 2:].t().clone()

    assert_close_like_cpu(transposed, x, y, eager=False)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("shape", [(2, 20, 9, 7), (3, 33, 4, 16), (1, 64, 31, 1)])
def test_permutations(assert_close_like_cpu: Check, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))

    def permuted(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        last = x.permute(0, 2, 3, 1).contiguous() * 2
        reversed_axes = x.permute(3, 2, 1, 0).contiguous()
        mixed = x + x.contiguous(memory_format=torch.channels_last).sin()
        return last, reversed_axes, mixed, x.flip(1).transpose(1, 2).contiguous()

    assert_close_like_cpu(permuted, x, eager=False)
