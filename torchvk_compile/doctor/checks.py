"""The self-test: what each check runs on the device, and what depends on it.

In: a vk device. Out: the table `CHECKS`; each check raises CheckFailedError on a wrong answer.
Forbidden: printing; deciding what a failure means for the verdict.

Inputs are drawn from a fixed seed. Tolerances are a few units of the dtype's rounding times the
square root of the number of terms; sums of small whole numbers have to be exact.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from torchvk_compile.doctor.poison import CheckFailedError, compare, fill, refuse_unwritten

_ROW_LENGTHS = (1, 3, *(w + d for w in (4, 8, 16, 32, 64, 128) for d in (-1, 0, 1)), 1000, 4099)
"""Around every subgroup width that Vulkan devices have, and across a whole workgroup."""

_TRAINING_STEPS = 5


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: shown to the user; also chosen by it on the command line.
        essential: training in float32 cannot work without it.
        advice: what to do without it, if it is not essential.
        run: raises CheckFailedError, or anything else that goes wrong on the way.
    """

    name: str
    essential: bool
    advice: str
    run: Callable[[torch.device], None]


def _random(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(shape, generator=generator) * scale).to(dtype)


def _whole(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whole numbers from -4 to 4, whose sums are exact in any order."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def _copies(device: torch.device) -> None:
    for count in (1, 1000, 1 << 20):
        sent = torch.arange(count, dtype=torch.int32)
        on_device = sent.to(device)
        copied = fill(torch.empty(count, dtype=torch.int32, device=device)).copy_(on_device)
        refuse_unwritten(copied, f"copy of {count} elements")
        if not torch.equal(copied.cpu(), sent):
            raise CheckFailedError("wrong", f"{count} elements came back changed")


def _vector_add(device: torch.device) -> None:
    counts = (1, 31, 1000, 1 << 20)
    inputs = [_random(count, scale=scale) for count in counts for scale in (1.0, 3.0)]
    inputs += [torch.arange(1001) * (1 << 33), torch.arange(1001)]
    compare(
        [*(f"sum of two vectors of {count}" for count in counts), "sum of two int64 vectors"],
        lambda *xs: [a + b for a, b in zip(xs[::2], xs[1::2])],
        inputs,
        device,
        rtol=2e-7,
        atol=1e-6,
    )


def _reductions(dtype: torch.dtype) -> Callable[[torch.device], None]:
    reductions = (
        ("sum", lambda x: x.sum(1)),
        ("largest element", lambda x: x.amax(1)),
        ("place of the smallest", lambda x: x.argmin(1)),
        ("sum of columns", lambda x: x.t().sum(0)),
    )

    def run(device: torch.device) -> None:
        rows = [_whole(3, length, dtype=dtype) for length in _ROW_LENGTHS]
        for name, function in reductions:
            compare(
                [f"{name} of rows of {length}" for length in _ROW_LENGTHS],
                lambda *xs, function=function: [function(x) for x in xs],
                rows,
                device,
                rtol=0,
            )

    return run


def _matmul(dtype: torch.dtype, rtol: float) -> Callable[[torch.device], None]:
    sizes = ((1, 5, 3), (33, 65, 31), (128, 128, 128), (64, 1000, 10))

    def run(device: torch.device) -> None:
        inputs = []
        for m, k, n in sizes:
            inputs += [_random(m, k, dtype=dtype), _random(k, n, dtype=dtype)]
        compare(
            [f"product of {m} x {k} and {k} x {n}" for m, k, n in sizes],
            lambda *xs: [a @ b for a, b in zip(xs[::2], xs[1::2])],
            inputs,
            device,
            rtol=rtol,
            atol=rtol * max(k for _, k, _ in sizes) ** 0.5,
        )

    return run


def _convolution(dtype: torch.dtype, rtol: float) -> Callable[[torch.device], None]:
    def function(
        x: torch.Tensor, weight: torch.Tensor, upstream: torch.Tensor
    ) -> list[torch.Tensor]:
        backward = torch.ops.aten.convolution_backward
        ones, wanted = [1, 1], [True, True, False]
        gradients = backward(upstream, x, weight, None, ones, ones, ones, False, [0, 0], 1, wanted)
        return [functional.conv2d(x, weight, padding=1), gradients[0], gradients[1]]

    def run(device: torch.device) -> None:
        x, weight = _random(2, 3, 15, 17, dtype=dtype), _random(8, 3, 3, 3, dtype=dtype)
        upstream = _random(2, 8, 15, 17, dtype=dtype)
        terms = 2 * 15 * 17  # of one element of the weight's gradient, the longest sum here
        compare(
            ["convolution", "gradient of its input", "gradient of its weight"],
            function,
            (x, weight, upstream),
            device,
            rtol=rtol,
            atol=rtol * terms**0.5,
        )

    return run


def _atomics(device: torch.device) -> None:
    dtypes = (torch.float32, torch.int32, torch.int64)
    where = torch.randint(0, 17, (5000,), generator=torch.Generator().manual_seed(0))
    compare(
        [f"additions of {str(dtype).removeprefix('torch.')} to 17 places" for dtype in dtypes],
        lambda where, *xs: [x.new_zeros(17).index_add(0, where, x) for x in xs],
        [where, *(_whole(5000, dtype=dtype) for dtype in dtypes)],
        device,
        rtol=0,
    )


def _extremes(device: torch.device) -> None:
    inf = float("inf")
    magnitudes = (0.0, 1e-30, 1e-7, 1e-3, 0.5, 1, 5, 9.01, 20, 80, 87.3, 88.7, 89, 1e4, 3e38, inf)
    values = torch.tensor([s * m for m in magnitudes for s in (1, -1)] + [float("nan")])
    functions = {
        "exp": torch.exp,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "log": torch.log,
        "rsqrt": torch.rsqrt,
        "softmax": lambda x: torch.softmax(x.nan_to_num(0.0, 1e4, -1e4), 0),
    }
    compare(
        [f"{name} from 0 to infinity" for name in functions],
        lambda x: [function(x) for function in functions.values()],
        (values,),
        device,
        rtol=2e-6,
        atol=1.2e-38,  # the smallest normal number: devices may flush what is below
    )


class _Network(nn.Module):
    """A small classifier with the parts that most models are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, padding=1)
        self.normalisation = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.normalisation(self.convolution(x)))
        return self.linear(functional.max_pool2d(x, 2).flatten(1))


def _train(model: nn.Module, device: torch.device, half: bool) -> list[float]:
    """Losses of a few steps with AdamW; the model is moved and trained in place, compiled on vk.

    `half` means float16 autocast with a gradient scaler, on both devices alike.
    """
    model.to(device)
    x, labels = _random(32, 1, 8, 8).to(device), (torch.arange(32) % 5).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=half)

    def loss_of(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.float16, enabled=half):
            return functional.cross_entropy(model(x), labels)

    if device.type == "vk":
        torch.compiler.reset()
        loss_of = torch.compile(loss_of, backend="torchvk", dynamic=False)
    losses = []
    for _ in range(_TRAINING_STEPS):
        optimizer.zero_grad()
        loss = loss_of(x, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def _training_step(half: bool, rtol: float) -> Callable[[torch.device], None]:
    def run(device: torch.device) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = _Network()
        before, reference = copy.deepcopy(model), copy.deepcopy(model)
        expected = _train(reference, torch.device("cpu"), half)
        found = _train(model, device, half)
        for name, parameter in model.named_parameters():
            if torch.equal(parameter.detach().cpu(), before.get_parameter(name)):
                raise CheckFailedError("unwritten", f"training left the parameter {name} as it was")
        for step, (ours, theirs) in enumerate(zip(found, expected), start=1):
            # `not <=` also catches NaN.
            if not abs(ours - theirs) <= rtol * abs(theirs):
                raise CheckFailedError(
                    "wrong", f"the loss of step {step} is {ours:.6f} where the CPU has {theirs:.6f}"
                )

    return run


_HALF_ADVICE = "train in float32, without autocast and without .half()"

CHECKS = (
    Check("copies", True, "", _copies),
    Check("vector add", True, "", _vector_add),
    Check("reductions", True, "", _reductions(torch.float32)),
    Check("reductions float16", False, _HALF_ADVICE, _reductions(torch.float16)),
    Check("matmul", True, "", _matmul(torch.float32, 1e-5)),
    Check("matmul float16", False, _HALF_ADVICE, _matmul(torch.float16, 2e-3)),
    Check("convolution", True, "", _convolution(torch.float32, 1e-5)),
    Check("convolution float16", False, _HALF_ADVICE, _convolution(torch.float16, 2e-3)),
    Check("atomics", False, "avoid embeddings, index_add and scatter_add", _atomics),
    Check("exp, tanh extremes", True, "", _extremes),
    Check("training step", True, "", _training_step(False, 1e-3)),
    Check("training float16", False, _HALF_ADVICE, _training_step(True, 2e-2)),
)
"""In the order in which they run: later checks rest on what earlier ones prove."""
