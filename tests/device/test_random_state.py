"""Seeds, states and generators: the same seed gives the same numbers, wherever it comes from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def test_manual_seed_reaches_the_device(vk: torch.device) -> None:
    torch.manual_seed(3)
    first, second = torch.rand(8, device=vk), torch.rand(8, device=vk)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(8, device=vk), first)
    assert not torch.equal(first, second)
    torch.vk.manual_seed(3)
    assert torch.equal(torch.rand(8, device=vk), first)
    assert torch.vk.initial_seed() == 3


def test_state_can_be_saved_and_restored(vk: torch.device) -> None:
    torch.manual_seed(0)
    torch.rand(1, device=vk)
    state = torch.vk.get_rng_state()
    assert state.device.type == "cpu" and state.dtype is torch.uint8
    first = torch.randn(8, device=vk)
    torch.vk.set_rng_state(state)
    assert torch.equal(torch.randn(8, device=vk), first)
    torch.vk.set_rng_state_all([state])
    assert torch.equal(torch.randn(8, device=vk), first)
    assert torch.equal(torch.vk.get_rng_state("vk:0"), torch.vk.get_rng_state(vk))


def test_wrong_state_is_refused(vk: torch.device) -> None:
    with pytest.raises(RuntimeError, match="uint8 tensor of 16 elements"):
        torch.vk.set_rng_state(torch.zeros(3))


def test_fork_rng_restores_the_state(vk: torch.device) -> None:
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="vk"):
        inside = torch.rand(4, device=vk)
    assert torch.equal(torch.rand(4, device=vk), inside)


def test_cpu_generator_is_honoured(vk: torch.device) -> None:
    generator = torch.Generator().manual_seed(5)
    first = torch.rand(4, device=vk, generator=generator)
    second = torch.empty(4, device=vk).uniform_(generator=generator)
    generator.manual_seed(5)
    assert torch.equal(torch.rand(4, device=vk, generator=generator), first)
    assert torch.equal(torch.empty(4, device=vk).uniform_(generator=generator), second)
    before = torch.vk.get_rng_state()
    torch.rand(4, device=vk, generator=generator)
    assert torch.equal(torch.vk.get_rng_state(), before)


DISTRIBUTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    # filler, mean, standard deviation
    "uniform_": (lambda x: x.uniform_(2.0, 3.0), 2.5, 1 / 12**0.5),
    "normal_": (lambda x: x.normal_(1.0, 2.0), 1.0, 2.0),
    "exponential_": (lambda x: x.exponential_(2.0), 0.5, 0.5),
    "bernoulli_": (lambda x: x.bernoulli_(0.3), 0.3, 0.21**0.5),
    "random_": (lambda x: x.random_(0, 10), 4.5, (99 / 12) ** 0.5),
    "geometric_": (lambda x: x.geometric_(0.4), 2.5, 0.6**0.5 / 0.4),
    "log_normal_": (lambda x: x.log_normal_(0.0, 0.5), 1.1331, 0.6039),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments(vk: torch.device, name: str) -> None:
    torch.manual_seed(0)
    fill, mean, deviation = DISTRIBUTIONS[name]
    numbers = fill(torch.empty(40_000, device=vk)).cpu()
    assert abs(numbers.mean().item() - mean) < 5 * deviation / 200
    assert abs(numbers.std().item() - deviation) < 0.05 * deviation


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_low_precision_uniform_stays_below_one(vk: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    numbers = torch.rand(40_000, device=vk, dtype=dtype).cpu()
    assert numbers.min().item() >= 0 and numbers.max().item() < 1


def test_integers_cover_their_range(vk: torch.device) -> None:
    torch.manual_seed(0)
    numbers = torch.randint(-2, 3, (500,), device=vk).cpu()
    assert sorted(set(numbers.tolist())) == [-2, -1, 0, 1, 2]
    assert torch.randint(0, 2**40, (50,), device=vk).max().item() > 2**32


def test_bad_parameters_raise(vk: torch.device) -> None:
    tensor = torch.empty(3, device=vk)
    with pytest.raises(RuntimeError, match="uniform_ expects"):
        tensor.uniform_(1.0, 0.0)
    with pytest.raises(RuntimeError, match="std"):
        tensor.normal_(0.0, -1.0)


def test_initialisers(vk: torch.device) -> None:
    weight = torch.empty(64, 64, device=vk)
    nn.init.kaiming_uniform_(weight)
    assert weight.abs().max().item() <= (6 / 64) ** 0.5
    nn.init.trunc_normal_(weight, std=1.0, a=-0.5, b=0.5)
    assert weight.abs().max().item() <= 0.5


def test_dropout_masks_survive_checkpointing(vk: torch.device) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to(vk)
    for reentrant in (False, True):
        inputs = torch.ones(4, 8, device=vk, requires_grad=True)
        torch.manual_seed(7)
        checkpoint(model, inputs, use_reentrant=reentrant).sum().backward()
        recomputed = inputs.grad
        inputs.grad = None
        torch.manual_seed(7)
        model(inputs).sum().backward()
        assert recomputed is not None and inputs.grad is not None
        torch.testing.assert_close(recomputed.cpu(), inputs.grad.cpu())
