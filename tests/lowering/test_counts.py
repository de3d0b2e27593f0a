"""Poisson and binomial numbers have their distributions: small means and large ones, every float dtype."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from torchvk_compile.errors import DeviceAssertError, DtypeMismatchError

_DRAWS = 65536
_FALSE_ALARM = 1e-6
"""Chance that a right generator fails; the seeds are fixed, so it fails always or never."""

_MODES = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
_FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def _in_mode(function: Callable[..., torch.Tensor], compiled: bool) -> Callable[..., torch.Tensor]:
    return torch.compile(function, backend="torchvk") if compiled else function


def _check(draws: torch.Tensor, logarithm: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Kolmogorov's distance of the draws from a distribution, given the logarithms of its probabilities."""
    draws = draws.cpu().double().flatten()
    assert torch.equal(draws, draws.round()) and draws.min() >= 0
    support = torch.arange(int(draws.max()) + 1, dtype=torch.float64)
    exact = logarithm(support).exp().cumsum(0)
    found = torch.searchsorted(draws.sort().values, support, right=True) / draws.numel()
    allowed = math.sqrt(-math.log(_FALSE_ALARM / 2) / (2 * draws.numel()))
    assert (found - exact).abs().max() < allowed


def _poisson(rate: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda k: k * math.log(rate) - rate - torch.lgamma(k + 1)


def _binomial(count: float, chance: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def logarithm(k: torch.Tensor) -> torch.Tensor:
        ways = math.lgamma(count + 1) - torch.lgamma(k + 1) - torch.lgamma(count - k + 1)
        return ways + k * math.log(chance) + (count - k) * math.log1p(-chance)

    return logarithm


@_MODES
def test_poisson(vk: torch.device, compiled: bool) -> None:
    torch.manual_seed(1)
    rates = [0.01, 0.7, 4.0, 9.99, 10.0, 15.5, 40.0, 900.0, 30000.0]
    given = torch.tensor(rates)[:, None].expand(-1, _DRAWS)
    for draws, rate in zip(_in_mode(torch.poisson, compiled)(given.to(vk)), rates, strict=True):
        _check(draws, _poisson(given.new_tensor(rate).item()))


@_MODES
def test_binomial(vk: torch.device, compiled: bool) -> None:
    torch.manual_seed(2)
    cases = [(1, 0.5), (12, 0.25), (12, 0.875), (40, 0.5), (500, 0.01), (500, 0.995), (4096, 0.375)]
    count, chance = torch.tensor(cases).T[:, :, None]
    draws = _in_mode(torch.binomial, compiled)(count.to(vk).expand(-1, _DRAWS), chance.to(vk))
    for row, n, p in zip(draws, count.flatten(), chance.flatten(), strict=True):
        assert row.max() <= n
        _check(row, _binomial(n.item(), p.item()))


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_dtypes(vk: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    rate = torch.full((_DRAWS,), 20.0, dtype=dtype, device=vk)
    draws = torch.poisson(rate)
    assert draws.dtype == dtype
    _check(draws, _poisson(20.0))
    draws = torch.binomial(rate, torch.full_like(rate, 0.25))
    assert draws.dtype == dtype
    _check(draws, _binomial(20.0, 0.25))


@_MODES
def test_what_is_certain_happens(vk: torch.device, compiled: bool) -> None:
    count = torch.tensor([0.0, 7, 7, 7, 7, math.nan, 3], device=vk)
    chance = torch.tensor([0.5, 0, 1, 2, -1, 0.5, math.nan], device=vk)
    found = _in_mode(torch.binomial, compiled)(count, chance).cpu()
    expected = torch.tensor([0.0, 0, 7, 7, 0, math.nan, math.nan])
    torch.testing.assert_close(found, expected, equal_nan=True)
    rate = torch.tensor([0.0, -0.0], device=vk)
    assert _in_mode(torch.poisson, compiled)(rate).tolist() == [0, 0]


@_MODES
def test_the_seed_decides(vk: torch.device, compiled: bool) -> None:
    draw = _in_mode(lambda rate: torch.poisson(rate) + torch.binomial(rate, rate / 9), compiled)
    rate = torch.linspace(0, 30, 500, device=vk).floor()
    torch.manual_seed(4)
    first, second = draw(rate).cpu(), draw(rate).cpu()
    torch.manual_seed(4)
    assert torch.equal(draw(rate).cpu(), first) and not torch.equal(first, second)


@_MODES
def test_gradients_are_zero(vk: torch.device, compiled: bool) -> None:
    rate = torch.full((5,), 3.0, device=vk, requires_grad=True)
    draw = _in_mode(lambda rate: torch.poisson(rate) + rate, compiled)
    (gradient,) = torch.autograd.grad(draw(rate).sum(), rate)
    assert gradient.tolist() == [1.0] * 5


@_MODES
def test_what_torch_refuses(vk: torch.device, compiled: bool) -> None:
    with pytest.raises(DeviceAssertError, match="expected rate to be non-negative"):
        _in_mode(torch.poisson, compiled)(torch.tensor([1.0, -1.0], device=vk))
        torch.vk.synchronize()  # type: ignore[attr-defined]
    if not compiled:
        one = torch.ones(3, device=vk)
        with pytest.raises(DtypeMismatchError, match="count and prob"):
            torch.binomial(one, one.half())


def test_torchs_distributions_use_them(vk: torch.device) -> None:
    torch.manual_seed(5)
    rate = torch.tensor(6.0, device=vk)
    _check(torch.distributions.Poisson(rate).sample((_DRAWS,)), _poisson(6.0))
    chance = torch.tensor(0.75, device=vk)
    draws = torch.distributions.Binomial(30, chance).sample((_DRAWS,))
    _check(draws, _binomial(30.0, 0.75))
