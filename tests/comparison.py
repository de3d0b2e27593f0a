"""One function on three ways: CPU eager, device eager, device compiled. All must agree.

In: a function and its inputs. Out: nothing, or an AssertionError that says where to look.
Forbidden: tolerances wider than torch.testing's unless the test passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from torchvk_compile import config


def assert_close_like_cpu(
    fn: Callable[..., Any],
    *inputs: Any,
    device: torch.device | str = "vk",
    slang_directory: Path,
    rtol: float | None = None,
    atol: float | None = None,
    eager: bool = True,
    compiled: bool = True,
    dynamic: bool | None = None,
) -> None:
    """Run `fn` on CPU eager, device eager and device compiled and compare with the CPU.

    Compared are the outputs, the inputs after the call (in-place operators), and, where inputs
    require gradients, the gradients of a fixed weighting of the outputs. NaNs are equal to NaNs.
    """
    expected = _outcome(fn, inputs, torch.device("cpu"))
    ways: list[tuple[str, Callable[..., Any]]] = []
    if eager:
        ways.append(("eager", fn))
    if compiled:
        ways.append(("compiled", torch.compile(fn, backend="torchvk", dynamic=dynamic)))
    for way, function in ways:
        with config.patch(dump_shaders=slang_directory / way):
            actual = _outcome(function, inputs, torch.device(device))
        context = f"{_name(fn)}({_describe(inputs)}), {way} on {device}"
        if len(actual) != len(expected):
            raise AssertionError(f"{context}: {len(actual)} results, CPU has {len(expected)}")
        for label in expected:
            try:
                torch.testing.assert_close(
                    actual[label], expected[label], rtol=rtol, atol=atol, equal_nan=True
                )
            except AssertionError as error:
                raise AssertionError(
                    f"{context}: {label} differs from CPU eager\n"
                    f"largest difference: {_largest_difference(actual[label], expected[label])}\n"
                    f"Slang: {_slang_files(slang_directory / way)}\n{error}"
                ) from None


def _outcome(fn: Callable[..., Any], inputs: Sequence[Any], device: torch.device) -> dict[str, Any]:
    """Everything observable about ``fn(*inputs)`` on `device`, moved to the CPU, by label."""

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        # Through the storage, so that strides, offsets and overlaps are the same everywhere.
        storage = torch.empty(0, dtype=value.dtype).set_(value.detach().untyped_storage())
        moved = storage.clone().to(device)
        view = moved.as_strided(value.shape, value.stride(), value.storage_offset())
        return view.requires_grad_(value.requires_grad)

    placed = tree_map(place, list(inputs))
    leaves = [leaf for leaf in tree_flatten(placed)[0] if isinstance(leaf, torch.Tensor)]
    result = fn(*placed)
    outputs = tree_flatten(result)[0]
    outcome: dict[str, Any] = {f"output {i}": _on_cpu(value) for i, value in enumerate(outputs)}
    for i, leaf in enumerate(leaves):
        outcome[f"input {i} after the call"] = _on_cpu(leaf)
    differentiable = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if differentiable:
        _weighted_sum(differentiable).backward()
        for i, leaf in enumerate(leaves):
            if leaf.requires_grad:
                outcome[f"gradient of input {i}"] = _on_cpu(leaf.grad)
    return outcome


def _weighted_sum(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """A scalar in which every output element counts differently."""
    total = torch.zeros((), device=outputs[0].device)
    for output in outputs:
        weights = torch.linspace(0.5, 1.5, output.numel())
        if output.is_complex():
            weights = torch.complex(weights, weights.flip(0))
        weights = weights.reshape(output.shape).to(output.dtype).to(output.device)
        value = (output * weights).sum()
        total = total + (value.real if value.is_complex() else value).to(total.dtype)
    return total


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def _describe(inputs: Sequence[Any]) -> str:
    def one(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return repr(value)

    return ", ".join(one(value) for value in tree_flatten(list(inputs))[0])


def _largest_difference(actual: Any, expected: Any) -> str:
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return f"{actual!r} for {expected!r}"
    if actual.shape != expected.shape or actual.numel() == 0:
        return f"shape {list(actual.shape)} for {list(expected.shape)}"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    difference = (actual.to(wide) - expected.to(wide)).abs()
    # A NaN on one side only is the worst difference there is.
    difference = torch.where(
        actual.isnan() & expected.isnan(), 0.0, difference.nan_to_num(torch.inf)
    )
    position = int(difference.argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(position), actual.shape))
    return (
        f"{difference.flatten()[position].item():g} at {index}: "
        f"{actual[index].item()!r} for {expected[index].item()!r}"
    )


def _slang_files(directory: Path) -> str:
    return ", ".join(str(path) for path in sorted(directory.glob("*.slang"))) or "none generated"
