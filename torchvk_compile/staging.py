"""The convenience path for models left on the CPU: inputs go up, the graph runs on a vk device, outputs come down.

In: a Dynamo graph of CPU tensors. Out: a callable on CPU tensors with the same results, effects and gradients.
Forbidden: computing on the CPU; holding on to inputs that the caller has dropped.

Parameters and buffers keep a mirror on the device that is uploaded again only after the original has changed (its
version counter moved). For training, moving the model with `.to("vk")` avoids all of these transfers.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map

from torchvk_compile import torch_compat

Compiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def compile_staged(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], compile_on_device: Compiler
) -> Callable[..., Any]:
    """Compile a graph of CPU tensors for the current vk device.

    Args:
        gm: the graph; it is not changed.
        example_inputs: fake CPU tensors and sizes.
        compile_on_device: compiles a graph whose tensors are on the device.

    Returns:
        A callable that takes and returns CPU tensors.
    """
    device = torch.device("vk", torch.vk.current_device())  # type: ignore[attr-defined]
    fake_mode = torch_compat.fake_mode_of(example_inputs)
    fakes = [_fake_on_device(value, device, fake_mode) for value in example_inputs]
    compiled = compile_on_device(_on_device(gm, device), fakes)
    mirrors = _Mirrors(device)

    def run(*inputs: Any) -> Any:
        staged = [mirrors.stage(value) if _is_cpu_tensor(value) else value for value in inputs]
        versions = [value._version if isinstance(value, torch.Tensor) else 0 for value in staged]
        outputs = compiled(*staged)
        for original, value, version in zip(inputs, staged, versions, strict=True):
            if isinstance(value, torch.Tensor) and value._version != version:
                mirrors.write_back(original)
        return tree_map(
            lambda value: _Download.apply(value) if isinstance(value, torch.Tensor) else value,
            outputs,
        )

    return run


def _on_device(gm: torch.fx.GraphModule, device: torch.device) -> torch.fx.GraphModule:
    """A copy of the graph that makes its new tensors on `device` wherever it made them on the CPU."""
    moved = copy.copy(gm)
    moved.graph = copy.deepcopy(gm.graph)
    constructors = _device_constructors()

    def placed(value: Any) -> Any:
        return device if isinstance(value, torch.device) and value.type == "cpu" else value

    for node in moved.graph.nodes:
        node.args = torch.fx.node.map_aggregate(node.args, placed)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, placed)
        if (
            node.op == "call_function"
            and node.target in constructors
            and node.kwargs.get("device") is None
        ):
            node.kwargs = {**node.kwargs, "device": device}
        elif node.op == "call_method" and node.target == "cpu":
            node.target, node.args = "to", (node.args[0], device)
        elif node.op == "get_attr":
            value = getattr(moved, node.target, None)
            if (
                isinstance(value, torch.Tensor)
                and _is_cpu_tensor(value)
                and not isinstance(value, torch.nn.Parameter)
            ):
                setattr(moved, node.target, value.to(device))
    moved.recompile()
    return moved


def _fake_on_device(value: Any, device: torch.device, fake_mode: Any) -> Any:
    if not _is_cpu_tensor(value):
        return value
    with fake_mode:
        moved = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
    return moved.requires_grad_(value.requires_grad)


def _is_cpu_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


class _Mirrors:
    """Copies of CPU tensors on the device, each as old as the version of the original it was made from."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._entries: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor, int]] = {}

    def stage(self, original: torch.Tensor) -> torch.Tensor:
        """The device tensor that stands for `original`, connected to it in autograd."""
        mirror = self._current(original)
        if original.requires_grad and torch.is_grad_enabled():
            return _Upload.apply(original, mirror)
        return mirror

    def write_back(self, original: torch.Tensor) -> None:
        """Bring a change of the mirror back to `original`."""
        reference, mirror, _ = self._entries[id(original)]
        with torch.no_grad():
            original.copy_(mirror)
        self._entries[id(original)] = (reference, mirror, original._version)

    def _current(self, original: torch.Tensor) -> torch.Tensor:
        key = id(original)
        entry = self._entries.get(key)
        if entry is None:
            with torch.no_grad():
                mirror = torch.empty_strided(
                    original.size(), original.stride(), dtype=original.dtype, device=self._device
                )
                mirror.copy_(original.detach())
            entries = self._entries
            reference = weakref.ref(original, lambda _: entries.pop(key, None))
        else:
            reference, mirror, version = entry
            if version == original._version and mirror.size() == original.size():
                return mirror
            with torch.no_grad():
                mirror = mirror.resize_(original.size()).copy_(original.detach())
        self._entries[key] = (reference, mirror, original._version)
        return mirror


class _Upload(torch.autograd.Function):
    """The mirror in the forward pass; gradients return to the CPU."""

    @staticmethod
    def forward(ctx: Any, original: torch.Tensor, mirror: torch.Tensor) -> torch.Tensor:
        return mirror.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return grad.cpu(), None


class _Download(torch.autograd.Function):
    """A CPU copy in the forward pass; gradients go to the device."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor) -> torch.Tensor:
        ctx.device = output.device
        return output.cpu()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.to(ctx.device)
