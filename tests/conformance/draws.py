"""Random draws and uninitialised memory, checked by what they promise.

In: a call and its results, or a function that draws. Out: nothing, or `Mismatch`.
Forbidden: comparing single draws; the generators of CPU and vk differ by design.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .comparison import Mismatch, compare
from .placement import tensors_in
from .tolerances import NOTHING_MORE, Tolerance, default

_POPULATION = 16384
_FALSE_ALARM = 1e-6
"""Chance that a right generator fails; the seeds are fixed, so it fails always or never."""

Population = Callable[[torch.device, torch.dtype], torch.Tensor]


def check_form(call: Any, expected: Any, actual: Any) -> None:
    """The results have torch's dtypes, shapes and strides; their elements may be anything."""
    mine, theirs = list(tensors_in([actual])), list(tensors_in([expected]))
    if len(mine) != len(theirs):
        raise Mismatch(f"{len(mine)} results, expected {len(theirs)}")
    for some, other in zip(mine, theirs, strict=True):
        forms = [(t.dtype, tuple(t.shape), t.stride()) for t in (some, other)]
        if forms[0] != forms[1]:
            raise Mismatch(f"dtype, shape, strides {forms[0]}, expected {forms[1]}")


def check_finite(call: Any, expected: Any, actual: Any) -> None:
    """The results have torch's form, and are finite where CPU eager's all are."""
    check_form(call, expected, actual)
    for some, other in zip(tensors_in([actual]), tensors_in([expected]), strict=True):
        if bool(other.isfinite().all()) and not bool(some.cpu().isfinite().all()):
            raise Mismatch("a result is not finite")


def check_dropout(call: Any, expected: Any, actual: Any) -> None:
    """Every element is 0 or x / (1 - p)."""
    check_form(call, expected, actual)
    p = call.kwargs.get("p", call.args[0] if call.args else 0.5)
    kept = call.input.double() / (1 - p) if p < 1 else torch.zeros_like(call.input).double()
    result = actual.detach().cpu().double()
    tolerance = default(actual.dtype)
    good = torch.isclose(result, kept, rtol=tolerance.rtol, atol=tolerance.atol) | (result == 0)
    if not bool(good.all()):
        raise Mismatch("an element is neither 0 nor x / (1 - p)")


def check_dropout_of_channels(call: Any, expected: Any, actual: Any) -> None:
    """Every channel is 0 or x / (1 - p) as a whole."""
    check_dropout(call, expected, actual)
    channels = actual.detach().cpu().flatten(2) if actual.dim() > 3 else actual.detach().cpu()
    zero = (channels == 0) & (call.input.reshape(channels.shape) != 0)
    if bool((zero.any(-1) & ~(channels == 0).all(-1)).any()):
        raise Mismatch("a channel was dropped in part")


def check_rrelu(call: Any, expected: Any, actual: Any) -> None:
    """x where x >= 0, else x times a slope between `lower` and `upper`."""
    check_form(call, expected, actual)
    lower, upper = call.kwargs.get("lower", 1 / 8), call.kwargs.get("upper", 1 / 3)
    x, result = call.input.double(), actual.detach().cpu().double()
    slack = 1 + default(actual.dtype).rtol
    bounded = (result <= x * lower / slack) & (result >= x * upper * slack)
    if not bool(torch.where(x >= 0, result == x, bounded | (x.abs() < 1e-6)).all()):
        raise Mismatch("an element is outside of the slopes' range")


def check_bernoulli(call: Any, expected: Any, actual: Any) -> None:
    """Zeros and ones; certain events happen, impossible ones do not."""
    check_form(call, expected, actual)
    result = actual.detach().cpu()
    if not bool(((result == 0) | (result == 1)).all()):
        raise Mismatch("an element is neither 0 nor 1")


def check_multinomial(call: Any, expected: Any, actual: Any) -> None:
    """Indices of events that can happen, none twice without replacement."""
    check_form(call, expected, actual)
    indices = actual.cpu()
    weights = call.input
    if not bool((weights.gather(-1, indices) > 0).all()):
        raise Mismatch("an event of probability 0 was drawn")
    replacement = call.kwargs.get("replacement", call.args[1] if len(call.args) > 1 else False)
    if not replacement and bool((indices.sort(-1).values.diff(dim=-1) == 0).any()):
        raise Mismatch("an event was drawn twice without replacement")


def check_fractional_pool(call: Any, expected: Any, actual: Any) -> None:
    """Every element stands in its plane of the input, at its index if there is one."""
    check_form(call, expected, actual)
    values, *indices = [t.detach().cpu() for t in tensors_in([actual])]
    spatial = 2 if call.name.endswith("2d") else 3
    planes = call.input.flatten(-spatial)
    rows = values.flatten(-spatial)
    if indices:
        compare(planes.gather(-1, indices[0].flatten(-spatial)), rows, NOTHING_MORE)
    elif not bool((rows.unsqueeze(-1) == planes.unsqueeze(-2)).any(-1).all()):
        raise Mismatch("an element is not in its plane of the input")


def check_scaling_gradient(call: Any, outputs: Any, cotangents: Any, gradients: Any) -> None:
    """For y = m x with a random m: the gradient is m times the cotangent."""
    gradient, cotangent = gradients[0].cpu().double(), cotangents[0].cpu().double()
    x, y = call.input.detach().double(), outputs[0].detach().cpu().double()
    tolerance = default(outputs[0].dtype)
    close = torch.isclose(gradient * x, cotangent * y, rtol=4 * tolerance.rtol, atol=tolerance.atol)
    if not bool(close.all()):
        raise Mismatch("the gradient belongs to another draw than the result")


def check_population(
    name: str, draw: Callable[[torch.device], torch.Tensor], device: torch.device
) -> None:
    """A large draw on `device` is distributed like one on the CPU, and repeats under the same seed.

    Raises:
        Mismatch: when the two-sample Kolmogorov-Smirnov distance is too large, or a draw does not
            repeat.
    """
    torch.manual_seed(20)
    theirs = draw(torch.device("cpu")).double().flatten()
    torch.manual_seed(20)
    first, second = (draw(device).cpu() for _ in range(2))
    torch.manual_seed(20)
    if not torch.equal(first, draw(device).cpu()):
        raise Mismatch(f"{name}: another draw under the same seed")
    if torch.equal(first, second):
        raise Mismatch(f"{name}: the same draw twice")
    mine = first.double().flatten()
    distance = _distance(mine, theirs, default(first.dtype))
    count = min(mine.numel(), theirs.numel())
    allowed = math.sqrt(-math.log(_FALSE_ALARM / 2) / 2) * math.sqrt(2 / count)
    if not distance <= allowed:
        raise Mismatch(f"{name}: distributions differ by {distance:.3f}, {allowed:.3f} is chance")


def _distance(some: torch.Tensor, others: torch.Tensor, tolerance: Tolerance) -> float:
    """The largest share by which the values up to a point exceed the other sample's up to a tolerance beyond it.

    Without the tolerance it is the Kolmogorov-Smirnov distance. All values of a dropout may be off by a rounding error.
    """
    points = torch.cat([some, others]).unique()
    beyond = points + tolerance.atol + tolerance.rtol * points.abs()

    def share(values: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(values.sort().values, bounds, right=True) / values.numel()

    pairs = ((some, others), (others, some))
    return max((share(a, points) - share(b, beyond)).max().item() for a, b in pairs)


def _full(value: float, shape: tuple[int, ...] = (_POPULATION,)) -> Population:
    return lambda device, dtype: torch.full(shape, value, dtype=dtype, device=device)


def _of(function: Callable[[torch.Tensor], torch.Tensor], source: Population) -> Population:
    return lambda device, dtype: function(source(device, dtype))


_zeros = _full(0.0)
_ones = _full(1.0)

POPULATIONS: dict[str, Population] = {
    "bernoulli": _of(torch.bernoulli, _full(0.3)),
    "cauchy": _of(lambda x: x.cauchy_(1.0, 2.0), _zeros),
    "exponential": _of(lambda x: x.exponential_(0.7), _zeros),
    "geometric": _of(lambda x: x.geometric_(0.2), _zeros),
    "log_normal": _of(lambda x: x.log_normal_(0.2, 0.5), _zeros),
    "normal_in_place": _of(lambda x: x.normal_(1.0, 3.0), _zeros),
    "uniform": _of(lambda x: x.uniform_(-1.0, 3.0), _zeros),
    "normal": _of(lambda x: torch.normal(x, x), _ones),
    "normal_number_mean": _of(lambda x: torch.normal(2.0, x), _ones),
    "randn": lambda device, dtype: torch.randn(_POPULATION, device=device, dtype=dtype),
    "randn_like": _of(torch.randn_like, _zeros),
    "rand_like": _of(torch.rand_like, _zeros),
    "randint": lambda device, dtype: torch.randint(
        -3, 90, (_POPULATION,), device=device, dtype=dtype
    ),
    "randint_like": _of(lambda x: torch.randint_like(x, 5, 70), _zeros),
    "multinomial": lambda device, dtype: torch.multinomial(
        torch.arange(20, dtype=dtype, device=device), _POPULATION, replacement=True
    ),
    "nn_functional_dropout": _of(lambda x: F.dropout(x, 0.3), _ones),
    "nn_functional_dropout2d": _of(
        lambda x: F.dropout2d(x, 0.3), _full(1.0, (_POPULATION // 8, 8, 1, 1))
    ),
    "nn_functional_dropout3d": _of(
        lambda x: F.dropout3d(x, 0.3), _full(1.0, (_POPULATION // 8, 8, 1, 1, 1))
    ),
    "nn_functional_alpha_dropout": _of(lambda x: F.alpha_dropout(x, 0.3, True), _ones),
    "nn_functional_feature_alpha_dropout_with_train": _of(
        lambda x: F.feature_alpha_dropout(x, 0.3, True), _full(1.0, (_POPULATION // 8, 8, 1, 1))
    ),
    "nn_functional_rrelu": _of(lambda x: F.rrelu(x, training=True), _full(-1.0)),
}
"""Draws of `_POPULATION` independent elements."""

CHECKS = {
    **dict.fromkeys(
        (
            "empty",
            "empty_like",
            "empty_permuted",
            "empty_strided",
            "new_empty",
            "new_empty_strided",
            "resize_",
            "resize_as_",
        ),
        check_form,
    ),
    **dict.fromkeys(
        (
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "normal_in_place",
            "uniform",
            "normal",
            "normal_number_mean",
            "randn",
            "randn_like",
            "rand_like",
            "randint",
            "randint_like",
            "nn_functional_alpha_dropout",
            "nn_functional_feature_alpha_dropout_with_train",
            "nn_functional_scaled_dot_product_attention",
            "nn_functional_multi_head_attention_forward",
        ),
        check_finite,
    ),
    "bernoulli": check_bernoulli,
    "multinomial": check_multinomial,
    "nn_functional_dropout": check_dropout,
    "nn_functional_dropout2d": check_dropout_of_channels,
    "nn_functional_dropout3d": check_dropout_of_channels,
    "nn_functional_rrelu": check_rrelu,
    "nn_functional_fractional_max_pool2d": check_fractional_pool,
    "nn_functional_fractional_max_pool3d": check_fractional_pool,
}

DRAWS_IF: dict[str, Callable[[Any], bool]] = {
    "nn_functional_scaled_dot_product_attention": lambda call: (
        call.kwargs.get("dropout_p", 0.0) > 0
    ),
    # query is `call.input`; the dropout's probability is the tenth of the other arguments.
    "nn_functional_multi_head_attention_forward": lambda call: call.args[9] > 0,
}
"""Operators that draw under some arguments only; without them, their results are compared."""
