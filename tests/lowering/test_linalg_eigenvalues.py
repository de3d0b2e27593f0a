"""Eigenvalues of square matrices: what defines them, conjugate pairs, gradients, hard and refused matrices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchvk_compile.errors import UnsupportedOperatorError

Check = Callable[..., None]
DTYPES = [torch.float32, torch.float64]

_UNITS = 12
"""Errors allowed in units in the last place of the matrix's norm; 5 at most were seen."""


def _random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def _matrices(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    turn = torch.tensor([[0, -1], [1, 0]], dtype=dtype)
    jordan = 2 * torch.eye(5, dtype=dtype) + torch.ones(4, dtype=dtype).diag(1)
    return {
        "one element": _random(1, 1, dtype=dtype),
        "two": _random(2, 2, dtype=dtype),
        "odd": _random(17, 17, dtype=dtype),
        "larger than a team": _random(90, 90, dtype=dtype),
        "batch": _random(2, 3, 9, 9, dtype=dtype),
        "symmetric": _random(8, 8, dtype=dtype) + _random(8, 8, dtype=dtype).mT,
        "triangular": _random(9, 9, dtype=dtype).triu(),
        "rank deficient": torch.arange(49, dtype=dtype).reshape(7, 7),
        # Equal magnitudes, from which the usual shifts do not get away.
        "cyclic": torch.eye(12, dtype=dtype).roll(1, 0),
        "orthogonal": torch.linalg.qr(_random(12, 12, dtype=dtype))[0],
        "swap": torch.eye(2, dtype=dtype).flip(0),
        "pairs": torch.block_diag(turn, turn, turn),
        "Jordan block": jordan,
        "transposed Jordan block": jordan.mT,
        "graded": _random(12, 12, dtype=dtype) * torch.logspace(0, -10, 12, dtype=dtype),
        "zero": torch.zeros(4, 4, dtype=dtype),
        "identity": torch.eye(6, dtype=dtype),
        "huge": _random(5, 5, dtype=dtype) * 1e30,
        "tiny": _random(5, 5, dtype=dtype) * 1e-15,
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_are_only_stretched(vk: torch.device, dtype: torch.dtype) -> None:
    for name, a in _matrices(dtype).items():
        values, vectors = (t.cpu() for t in torch.linalg.eig(a.to(vk)))
        assert values.dtype == vectors.dtype == torch.empty((), dtype=dtype).to(values).dtype
        wide = vectors.to(torch.complex128)
        unit = torch.finfo(dtype).eps * a.double().norm(dim=(-2, -1), keepdim=True).clamp(1e-300)
        error = (a.to(wide) @ wide - wide * values.unsqueeze(-2)).abs() / unit
        assert error.max() <= _UNITS, f"{name}: off by {error.max():.3g} units"
        lengths = (wide.norm(dim=-2) - 1).abs() / torch.finfo(dtype).eps
        assert lengths.max() <= 4, f"{name}: lengths off by {lengths.max():.3g} units"


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_come_in_conjugate_pairs(vk: torch.device, dtype: torch.dtype) -> None:
    for name, a in _matrices(dtype).items():
        values = torch.linalg.eigvals(a.to(vk)).cpu()
        for row in values.reshape(-1, a.shape[-1]):
            left = row[row.imag != 0].tolist()
            while left:
                value = left.pop(0)
                assert value.imag > 0, f"{name}: the one above the real axis comes first"
                left.remove(value.conjugate())


def test_eigenvalues_of_symmetric_matrices_are_real(vk: torch.device) -> None:
    a = _random(20, 20, dtype=torch.float64)
    a = a + a.mT
    values = torch.linalg.eigvals(a.to(vk)).cpu()
    assert bool((values.imag == 0).all())
    torch.testing.assert_close(values.real.sort().values, torch.linalg.eigvalsh(a))


@pytest.mark.long
def test_gradients(assert_close_like_cpu: Check) -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eig(a)
        # Neither the order nor the phases of the vectors matter to these.
        return values.abs().sum() + (vectors * values.unsqueeze(-2) ** 2).abs().square().sum()

    a = _random(3, 6, 6, dtype=torch.float64).requires_grad_()
    assert_close_like_cpu(function, a)
    assert_close_like_cpu(lambda a: torch.linalg.eigvals(a).abs().sum(), a)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_matrices_that_are_not_finite(vk: torch.device, bad: float) -> None:
    a = torch.eye(3)
    a[1, 2] = bad
    with pytest.raises(torch.linalg.LinAlgError, match="eig"):
        torch.linalg.eig(a.to(vk))
    compiled = torch.compile(lambda a: torch.linalg.eig(a)[1].abs(), backend="torchvk")
    with pytest.raises(torch.linalg.LinAlgError, match="eig"):
        compiled(a.to(vk).requires_grad_())


def test_empty_matrices(vk: torch.device) -> None:
    values, vectors = torch.linalg.eig(torch.zeros(2, 0, 0, device=vk))
    assert values.shape == (2, 0) and vectors.shape == (2, 0, 0)


def test_complex_matrices_are_refused(vk: torch.device) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"linalg_eig.*complex64"):
        torch.linalg.eig(torch.eye(3, dtype=torch.complex64, device=vk))
