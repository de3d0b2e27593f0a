"""Random operators without a decomposition in torch, written with uniform and normal numbers.

In: their arguments. Out: their results, in terms of rand, randn and randint. Forbidden: drawing
numbers here; all randomness comes from the seeds that a graph takes when it runs.

In-place operators compute in float32 (float64 tensors get float32 randomness, as from Inductor) and
convert at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchvk_compile.lowering import decompositions

_aten = torch.ops.aten

_MANTISSA_BITS = {torch.float16: 11, torch.bfloat16: 8}
_INTEGER_RANGE = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


def _uniform_numbers(like: torch.Tensor) -> torch.Tensor:
    """Uniform numbers in [0, 1) that stay below 1 when they are rounded to the dtype of `like`."""
    numbers = torch.rand(like.shape, dtype=torch.float32, device=like.device)
    bits = _MANTISSA_BITS.get(like.dtype)
    return numbers if bits is None else torch.floor(numbers * 2.0**bits) / 2.0**bits


def _normal_numbers(like: torch.Tensor) -> torch.Tensor:
    return torch.randn(like.shape, dtype=torch.float32, device=like.device)


def _uniform(
    self: torch.Tensor, low: float = 0.0, high: float = 1.0, generator: None = None
) -> torch.Tensor:
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )
    if self.is_complex():
        _uniform(torch.view_as_real(self), low, high)
        return self
    return self.copy_(_uniform_numbers(self) * (high - low) + low)


def _normal(
    self: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: None = None
) -> torch.Tensor:
    decompositions.check_deviation(std)
    if self.is_complex():
        _normal(torch.view_as_real(self), mean, std / math.sqrt(2))  # half of the variance each
        return self
    return self.copy_(_normal_numbers(self) * std + mean)


def _log_normal(
    self: torch.Tensor, mean: float = 1.0, std: float = 2.0, generator: None = None
) -> torch.Tensor:
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return self.copy_(torch.exp(_normal_numbers(self) * std + mean))


def _bernoulli(self: torch.Tensor, p: Any = 0.5, generator: None = None) -> torch.Tensor:
    if isinstance(p, torch.Tensor):
        return self.copy_(decompositions.bernoulli_each(self, p))
    return self.copy_(decompositions.bernoulli_of_number(self, p))


def _exponential(self: torch.Tensor, lambd: float = 1.0, generator: None = None) -> torch.Tensor:
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return self.copy_(_exponential_numbers(self) / lambd)


def _exponential_numbers(like: torch.Tensor) -> torch.Tensor:
    """Exponential numbers, none of them 0: some algorithms divide by them."""
    numbers = torch.rand(like.shape, dtype=torch.float32, device=like.device)
    return -torch.log1p(-numbers).clamp_max(-torch.finfo(torch.float32).eps / 2)


def _cauchy(
    self: torch.Tensor, median: float = 0.0, sigma: float = 1.0, generator: None = None
) -> torch.Tensor:
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    numbers = torch.rand(self.shape, dtype=torch.float32, device=self.device)
    return self.copy_(median + sigma * torch.tan(math.pi * (numbers - 0.5)))


def _geometric(self: torch.Tensor, p: float, generator: None = None) -> torch.Tensor:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return self.copy_(torch.ceil(_exponential_numbers(self) / -math.log1p(-p)))


def _random(self: torch.Tensor, generator: None = None) -> torch.Tensor:
    if self.dtype is torch.bool:
        return _random_from(self, 0, 2)
    if self.dtype.is_floating_point:
        return _random_from(self, 0, 2 ** _INTEGER_RANGE[self.dtype] + 1)
    return _random_from(self, 0, torch.iinfo(self.dtype).max)


def _random_to(self: torch.Tensor, to: int, generator: None = None) -> torch.Tensor:
    return _random_from(self, 0, to)


def _random_from(
    self: torch.Tensor, low: int, high: int | None, generator: None = None
) -> torch.Tensor:
    if high is None:
        high = 2**63 - 1
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    return self.copy_(torch.randint(low, high, self.shape, device=self.device))


def _randperm(n: int, generator: None = None, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(torch.randperm(n, dtype=out.dtype, device=out.device))


def _multinomial(
    self: torch.Tensor, num_samples: int, replacement: bool = False, generator: None = None
) -> torch.Tensor:
    choices = self.shape[-1]
    if num_samples <= 0 or (not replacement and num_samples > choices):
        raise RuntimeError(
            "cannot sample n_sample <= 0 samples"
            if num_samples <= 0
            else "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    return torch.multinomial(self, num_samples, replacement)


def _rrelu(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> torch.Tensor:
    """Leaky relu with a random slope for each element, which `noise` keeps for the gradient."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2)
    slopes = (_uniform_numbers(self) * (upper - lower) + lower).to(self.dtype)
    slopes = torch.where(self <= 0, slopes, 1)
    noise.copy_(slopes)
    return self * slopes


def _rrelu_in_place(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return self.copy_(_rrelu(self, *args, **kwargs))


RULES: dict[torch._ops.OpOverload, Callable[..., torch.Tensor]] = {
    _aten.uniform_.default: _uniform,
    _aten.normal_.default: _normal,
    _aten.log_normal_.default: _log_normal,
    _aten.bernoulli_.float: _bernoulli,
    _aten.bernoulli_.Tensor: _bernoulli,
    _aten.bernoulli.default: decompositions.bernoulli,
    _aten.exponential_.default: _exponential,
    _aten.cauchy_.default: _cauchy,
    _aten.geometric_.default: _geometric,
    _aten.random_.default: _random,
    _aten.random_.to: _random_to,
    getattr(_aten.random_, "from"): _random_from,
    _aten.randperm.generator_out: _randperm,
    _aten.multinomial.default: _multinomial,
    _aten.rrelu_with_noise.default: _rrelu,
    _aten.rrelu_with_noise_.default: _rrelu_in_place,
}
"""How to trace each operator; generators are handled before tracing."""
