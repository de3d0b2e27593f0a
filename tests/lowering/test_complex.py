"""Complex tensors: arithmetic, movement, lazy conjugation, matrix products, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchvk_compile import audit
from torchvk_compile.errors import UnsupportedOperatorError

Check = Callable[..., None]


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _arithmetic(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        x + y,
        torch.add(x, y, alpha=2 - 1j),
        x - 3j,
        2.5 - y,
        x * y,
        x / y,
        1j / y,
        x / 3,
        x.reciprocal(),
        torch.addcmul(x, x, y, value=1 + 2j),
        torch.addcdiv(x, x, y, value=0.5),
        torch.lerp(x, y, 0.25),
        x.abs(),
        x.angle(),
        x.sgn(),
        x.square(),
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_arithmetic_and_its_gradients(assert_close_like_cpu: Check, dtype: torch.dtype) -> None:
    x = _numbers(3, 5, dtype=dtype).requires_grad_()
    y = _numbers(5, seed=1, dtype=dtype).requires_grad_()
    assert_close_like_cpu(_arithmetic, x, y, eager=dtype == torch.complex64)


def test_real_operands_promote(assert_close_like_cpu: Check) -> None:
    def mixed(z: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> Any:
        return z * x, x + 2j, n * 1j, n / z, torch.where(n > 2, z, x), z == x, z != z, z**n, x**z

    assert_close_like_cpu(mixed, _numbers(6), torch.rand(6) + 0.5, torch.arange(6))


def _movement(x: torch.Tensor, y: torch.Tensor, places: torch.Tensor) -> Any:
    rows = torch.tensor([2, 0, 2], device=x.device)
    return (
        torch.cat([x, y], 1),
        torch.stack([x, y]),
        x.t()[1:].clone(),
        x[:, ::2] * 2,
        x[rows],
        x.gather(1, places),
        torch.index_select(y, 0, rows),
        x.masked_fill(x.abs() > 1, 2 + 1j),
        x.scatter(1, places, y),
        x.scatter_add(1, places, y),
        x.index_add(0, rows, y[rows]),
        x.index_put((rows,), y[:3], accumulate=True),
        x.flip(0),
        x.roll(2, 1),
        x.tril(),
        torch.diag_embed(x),
        torch.nn.functional.pad(x, (1, 2), value=3.0),
        x.unfold(1, 2, 2),
        x.expand(2, -1, -1).sum(0),
        torch.view_as_real(x) + 1,
        x.real - x.imag,
    )


@pytest.mark.long
def test_movement_and_its_gradients(assert_close_like_cpu: Check) -> None:
    x, y = _numbers(4, 4).requires_grad_(), _numbers(4, 4, seed=1).requires_grad_()
    places = torch.tensor([[0, 3, 1, 2], [1, 0, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]])
    assert_close_like_cpu(_movement, x, y, places, eager=False)


def test_movement_eagerly(assert_close_like_cpu: Check) -> None:
    places = torch.tensor([[0, 3, 1, 2], [1, 0, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]])
    assert_close_like_cpu(_movement, _numbers(4, 4), _numbers(4, 4, seed=1), places, compiled=False)


def test_masks_select(assert_close_like_cpu: Check) -> None:
    def select(x: torch.Tensor) -> Any:
        return x[x.abs() > 1], x.nonzero(), torch.masked_select(x, x.real > 0), (x != 0).any()

    assert_close_like_cpu(select, _numbers(4, 5))


@pytest.mark.long
def test_reductions_and_their_gradients(assert_close_like_cpu: Check) -> None:
    def reduce(x: torch.Tensor) -> Any:
        return (
            x.sum(),
            x.mean(0),
            x.prod(1),
            x.cumsum(1),
            x.cumprod(0),
            x.logcumsumexp(1),
            x.var(1),
            x.std(),
            x.norm(),
            torch.linalg.vector_norm(x, 1, dim=0),
            torch.linalg.vector_norm(x, float("inf")),
        )

    x = _numbers(4, 7).requires_grad_()
    assert_close_like_cpu(reduce, x, eager=False, rtol=2e-5, atol=2e-5)
    assert_close_like_cpu(reduce, x.detach(), compiled=False, rtol=2e-5, atol=2e-5)


@pytest.mark.long
def test_matrix_products_and_their_gradients(assert_close_like_cpu: Check) -> None:
    def products(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return (
            a @ b,
            torch.addmm(c, a, b, beta=2j, alpha=0.5 - 1j),
            torch.bmm(a.expand(2, -1, -1), torch.stack([b, -b])),
            a @ b[:, 0],
            torch.vdot(a[0], a[1]),
            torch.dot(a[0], b[:, 1]),
            torch.outer(a[0], b[0]),
            a.mH @ c,
            torch.einsum("ij,jk->ki", a, b),
        )

    inputs = [_numbers(*shape, seed=i) for i, shape in enumerate([(5, 7), (7, 3), (5, 3)])]
    leaves = [x.clone().requires_grad_() for x in inputs]
    assert_close_like_cpu(products, *leaves, eager=False, rtol=1e-5, atol=1e-5)
    assert_close_like_cpu(products, *inputs, compiled=False, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("view", [torch.conj, lambda x: x.mT, lambda x: x[::2, 1:], torch.adjoint])
def test_views_as_inputs(assert_close_like_cpu: Check, view: Callable[..., Any]) -> None:
    def use(x: torch.Tensor) -> Any:
        y = view(x)
        return y * 2, y + y.conj(), y.imag, y.conj().imag + 1, y.sum(0), view(y.exp()).abs()

    assert_close_like_cpu(use, _numbers(4, 4).requires_grad_())


def test_lazy_bits_reach_a_compiled_graph(vk: torch.device) -> None:
    compiled = torch.compile(lambda a: (a * 2, a.sum()), backend="torchvk")
    x = _numbers(3, 4)
    for lazy in (torch.conj, lambda t: t.conj().imag, lambda t: t.mH):
        for actual, expected in zip(
            compiled(lazy(x.to(vk))), (lazy(x) * 2, lazy(x).sum()), strict=True
        ):
            torch.testing.assert_close(actual.cpu(), expected)


def test_writes_through_conjugated_views(assert_close_like_cpu: Check) -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.conj().add_(y)
        x.conj().addmm_(y.mH, y)
        return x * 1

    def write_parts(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.real.mul_(2)
        x.imag[0] = y.real[1]
        return x + y

    x, y = _numbers(3, 3), _numbers(3, 3, seed=1)
    assert_close_like_cpu(write, x, y, rtol=1e-5, atol=1e-5)
    assert_close_like_cpu(write_parts, x, y)


def test_written_arguments_of_compiled_graphs(vk: torch.device) -> None:
    x, y = _numbers(3, 3), _numbers(3, 3, seed=1)
    here, there = x.clone(), x.to(vk)
    torch.compile(lambda a, b: a.mul_(b), backend="torchvk")(there.conj(), y.to(vk))
    here.conj().mul_(y)
    torch.testing.assert_close(there.cpu(), here)


def test_strides_are_kept(vk: torch.device) -> None:
    x = _numbers(3, 4)
    for view in (x, x.t(), x.t()[::2]):
        on_device = view.to(vk)
        assert (on_device * 2).stride() == (view * 2).stride()
        assert (
            torch.compile(torch.exp, backend="torchvk")(on_device).stride() == view.exp().stride()
        )


def test_numbers_in_cpu_tensors(assert_close_like_cpu: Check, vk: torch.device) -> None:
    x = _numbers(3)
    number = torch.tensor(1 + 2j)
    compiled = torch.compile(lambda a, b: torch.tensor(3) - a * b**2, backend="torchvk")
    torch.testing.assert_close(compiled(x.to(vk), number).cpu(), 3 - x * number**2)
    assert_close_like_cpu(lambda a: number * a + torch.tensor(2.5), x)


def test_empty_and_single(assert_close_like_cpu: Check) -> None:
    def some(x: torch.Tensor) -> Any:
        return x * 2j, x.exp(), x.sum(), x.prod(), x.mean(), x.abs(), x.reshape(-1)

    for shape in ((0,), (2, 0, 3), (), (1,)):
        assert_close_like_cpu(some, _numbers(*shape))


def test_sizes_that_vary(assert_close_like_cpu: Check, vk: torch.device) -> None:
    compiled = torch.compile(lambda a: (a * a.conj(), a.sum(0)), backend="torchvk", dynamic=True)
    for rows in (3, 4, 7):
        x = _numbers(rows, 5)
        for actual, expected in zip(compiled(x.to(vk)), (x * x.conj(), x.sum(0)), strict=True):
            torch.testing.assert_close(actual.cpu(), expected)
        for part in (x[:, :2], x[::2]):
            on_device = x.to(vk)[:, :2] if part.shape[1] == 2 else x.to(vk)[::2]
            torch.testing.assert_close((on_device * 1j).cpu(), part * 1j)


def test_infinities_and_zeros_multiply_like_cpu(assert_close_like_cpu: Check) -> None:
    special = [0.0, -0.0, 1.0, -2.0, torch.inf, -torch.inf, torch.nan]
    x = torch.tensor([complex(a, b) for a in special for b in special])
    assert_close_like_cpu(lambda a: (a * 2j, a + 1, -a, a.conj(), a == a, a.isnan()), x)


def test_quotients_do_not_overflow(assert_close_like_cpu: Check) -> None:
    x = torch.tensor([1e30 + 1e30j, 1e-30 - 1e-30j, 3e38j, 1e20 + 1j])
    assert_close_like_cpu(lambda a: (a / a.conj(), a.abs(), a.sgn(), a / (2 + 1j)), x)


def test_factories(assert_close_like_cpu: Check) -> None:
    def make(x: torch.Tensor) -> Any:
        return (
            torch.full((2, 2), 1 - 2j, device=x.device) * x[0, 0],
            torch.full_like(x, 2j),
            torch.ones_like(x),
            x.new_zeros(3),
            torch.ones(2, dtype=torch.complex64, device=x.device),
            torch.complex(x.real, x.imag),
            torch.polar(x.abs(), x.angle()),
            x.to(torch.complex128).to(torch.complex64),
            x.real.to(torch.complex64),
            x.bool(),
            x.view(torch.float32),
        )

    assert_close_like_cpu(make, _numbers(3, 4))


def test_random_numbers(vk: torch.device) -> None:
    normal = torch.randn(20000, dtype=torch.complex64, device=vk).cpu()
    assert abs(normal.var().item() - 1) < 0.05
    assert abs((normal.real * normal.imag).mean().item()) < 0.02
    uniform = torch.rand(1000, dtype=torch.complex64, device=vk).cpu()
    assert torch.view_as_real(uniform).min() >= 0 and torch.view_as_real(uniform).max() < 1


def test_one_kernel_for_a_chain(vk: torch.device) -> None:
    compiled = torch.compile(lambda a, b: (a * b + a.conj()).abs() * b, backend="torchvk")
    x, y = _numbers(64).to(vk), _numbers(64, seed=1).to(vk)
    compiled(x, y)
    with audit() as report:
        compiled(x, y)
    assert report.dispatches == 1


def test_operators_without_a_rule_are_refused_by_name(vk: torch.device) -> None:
    x = _numbers(3, 3).to(vk)
    with pytest.raises(UnsupportedOperatorError, match=r"matrix_exp.*complex64"):
        torch.linalg.matrix_exp(x)
    with pytest.raises(UnsupportedOperatorError, match=r"matrix_exp.*complex64"):
        torch.compile(torch.linalg.matrix_exp, backend="torchvk")(x)
    assert torch.isfinite(x.abs()).all()
