"""Running a function on the device into poisoned outputs, and judging what came back.

In: a function of tensors, inputs on the CPU. Out: nothing, or CheckFailedError.
Forbidden: trusting memory that happens to hold the right numbers: a driver that launches kernels
which write nothing (reported for gfx1010) is found by the poison that is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch

_POISON = {1: 0x5D, 2: 0x7EDA, 4: 0x7FDEAD5A, 8: 0x7FFDEAD0C0FFEE5A}
"""By bytes an element. As floating point these are NaNs with a payload that no operator makes."""

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class CheckFailedError(Exception):
    """The device gave a wrong answer.

    Attributes:
        kind: "unwritten" if elements still hold what they were filled with, else "wrong".
    """

    def __init__(self, kind: Literal["unwritten", "wrong"], text: str) -> None:
        self.kind = kind
        super().__init__(text)


def fill(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a dense tensor with the poison of its element size, by a transfer, not by a kernel."""
    tensor.view(_INTEGERS[tensor.itemsize]).fill_(_POISON[tensor.itemsize])
    return tensor


def unwritten(tensor: torch.Tensor) -> int:
    """Number of elements that are still poison."""
    on_host = tensor.cpu()
    poison = on_host.view(_INTEGERS[tensor.itemsize]) == _POISON[tensor.itemsize]
    return int(poison.sum())


def refuse_unwritten(tensor: torch.Tensor, what: str) -> None:
    """Raise CheckFailedError if any element of a poisoned output was not written."""
    count = unwritten(tensor)
    if count:
        raise CheckFailedError(
            "unwritten",
            f"{what}: the kernel ran without an error but left {count} of {tensor.numel()} "
            "elements unwritten",
        )


def compare(
    names: Sequence[str],
    function: Callable[..., Sequence[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    device: torch.device,
    *,
    rtol: float,
    atol: float = 0.0,
) -> None:
    """Compile `function` for the device, run it on `inputs` and compare with the CPU.

    `names` are those of the results, in order. The reference is computed in float64 from the same
    (rounded) inputs. Each output has to be within ``atol + rtol * |reference|``; NaN and infinities
    have to be where the reference has them once it is rounded to the output's dtype.

    Raises:
        CheckFailedError: an element was not written, or is wrong.
    """
    expected = function(*(_widen(tensor) for tensor in inputs))
    dtypes = [output.dtype for output in function(*inputs)]
    outputs = [
        fill(torch.empty(reference.shape, dtype=dtype, device=device))
        for reference, dtype in zip(expected, dtypes)
    ]

    def store(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
        for output, result in zip(outputs, function(*inputs)):
            output.copy_(result)

    # Every call has a function of its own to compile; Dynamo would count them as recompilations.
    torch.compiler.reset()
    compiled = torch.compile(store, backend="torchvk", dynamic=False, fullgraph=True)
    compiled(outputs, [tensor.to(device) for tensor in inputs])
    for what, output, reference in zip(names, outputs, expected):
        refuse_unwritten(output, what)
        _refuse_wrong(what, output.cpu(), reference.to(output.dtype), rtol, atol)


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _refuse_wrong(
    what: str, found: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float
) -> None:
    if not found.is_floating_point():
        wrong = found != expected
    else:
        close = torch.isclose(
            found.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True
        )
        wrong = ~close
    count = int(wrong.sum())
    if count:
        first = tuple(wrong.nonzero()[0].tolist())
        raise CheckFailedError(
            "wrong",
            f"{what}: {count} of {found.numel()} elements are wrong; the first, at {first}, is "
            f"{found[first].item()} where the CPU has {expected[first].item()}",
        )
