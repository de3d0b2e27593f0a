"""Turning one operator call into a functional, decomposed ATen graph for the compiler.

In: an operator and its arguments, and which sizes and numbers may vary. Out: `OneOpGraph`.
Forbidden: compiling, running anything on the device, keeping the call's tensors.

The graph is what AOTAutograd would make of a function that calls the operator: views and mutations
removed, writes to arguments as ``aten.copy_`` into their placeholders at the end, Inductor's
decompositions applied, every output a tensor of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils import _pytree as pytree

from torchvk_compile import torch_compat
from torchvk_compile.device import rewrites
from torchvk_compile.device.operators import OperatorInfo
from torchvk_compile.lowering.decompositions import DECOMPOSITIONS

_aten = torch.ops.aten


@dataclass(frozen=True)
class Call:
    """An operator call taken apart.

    Attributes:
        op, info: the operator.
        leaves: all arguments, lists flattened, in order; tensors in the order `eager` found them.
        spec: how to put `leaves` together again, as (args, kwargs).
        tensors: positions in `leaves` of the tensors.
        numbers: positions of Python numbers that can become inputs of the graph.
    """

    op: torch._ops.OpOverload
    info: OperatorInfo
    leaves: list[Any]
    spec: pytree.TreeSpec
    tensors: tuple[int, ...]
    numbers: tuple[int, ...]

    @staticmethod
    def of(
        op: torch._ops.OpOverload,
        info: OperatorInfo,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Call:
        """Take a call apart."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
        return Call(op, info, leaves, spec, tensors, rewrites.variable_numbers(op, args, kwargs))

    def with_leaves(self, leaves: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with other leaves."""
        return pytree.tree_unflatten(leaves, self.spec)


@dataclass(frozen=True)
class OneOpGraph:
    """A graph and how to call it.

    Attributes:
        module: the graph; its inputs are the tensors at `slots`, then the varying numbers.
        example_inputs: fake tensors, one per input, all of one FakeTensorMode.
        slots: which of the call's tensors are inputs; a view that occurs twice is one input.
        number_dtypes: of the 0-d CPU tensors that carry varying numbers.
        fresh: for each result of the operator its index among the graph's outputs, or None if
            the result is a written argument or undefined.
        shape_env: of the symbols in the inputs' geometry; None for an exact trace.
    """

    module: torch.fx.GraphModule
    example_inputs: list[torch.Tensor]
    slots: tuple[int, ...]
    number_dtypes: tuple[torch.dtype, ...]
    fresh: tuple[int | None, ...]
    shape_env: ShapeEnv | None

    def fits(self) -> Callable[[Sequence[torch.Tensor]], bool] | None:
        """Whether tensors have the geometry this graph holds for; None where just the traced one fits.

        To be asked after compiling: a lowering may need a size as a number, which narrows what fits.
        """
        if self.shape_env is None:
            return None
        return _guard(self.shape_env, self.example_inputs, self.slots)


def trace(
    call: Call,
    same_view: Sequence[int],
    dynamic: Sequence[Sequence[bool]] | None,
    variable: Sequence[int],
    dtypes: Sequence[torch.dtype],
) -> OneOpGraph:
    """Trace a call.

    Args:
        call: the call.
        same_view: for each tensor the index of the first tensor that is the same view.
        dynamic: for each tensor and dimension, whether its size becomes a symbol; None for none.
        variable: positions in ``call.leaves`` of the numbers that become inputs.
        dtypes: dtypes of the operator's results.

    Raises:
        NotImplementedError: torch cannot trace the operator.
    """
    slots = tuple(i for i, first in enumerate(same_view) if i == first)
    shape_env = ShapeEnv()
    mode = FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True)
    sources = [call.leaves[call.tensors[slot]] for slot in slots]
    fakes = [
        _fake(mode, tensor, f"t{i}", dynamic[slot] if dynamic is not None else None)
        for i, (slot, tensor) in enumerate(zip(slots, sources, strict=True))
    ]
    number_dtypes = tuple(_number_dtype(call.leaves[position], sources) for position in variable)
    with mode:
        numbers = [torch.empty((), dtype=dtype, device="cpu") for dtype in number_dtypes]
    layout: dict[str, Any] = {}

    def function(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = list(call.leaves)
        for index, first in enumerate(same_view):
            leaves[call.tensors[index]] = inputs[slots.index(first)]
        for position, number in zip(variable, inputs[len(slots) :], strict=True):
            leaves[position] = number
        args, kwargs = call.with_leaves(leaves)
        results = rewrites.call(call.op, args, kwargs, dtypes if variable else None)
        outputs, layout["fresh"] = _fresh_results(call.info, results)
        return outputs

    inputs = [*fakes, *numbers]
    with torch.no_grad(), mode, enable_python_dispatcher():
        module = torch_compat.traced(
            torch.func.functionalize(function), inputs, torch_compat.decompositions()
        )
    _own_outputs(module)
    for node in module.graph.nodes:
        node.meta["original_aten"] = (
            call.op
        )  # kernels, and so their error messages, are named after it
    symbols = None if dynamic is None else shape_env
    return OneOpGraph(module, inputs, slots, number_dtypes, layout["fresh"], symbols)


def result_geometry(call: Call) -> tuple[list[torch.dtype], list[tuple[int, ...]]] | None:
    """Have torch's own shape functions check a call, or our formula where we have one.

    Returns:
        Dtypes of all results, and shapes of the written arguments afterwards; None if torch cannot
        tell without the data.

    Raises:
        whatever torch raises for wrong arguments, in its own words.
    """
    leaves = list(call.leaves)
    for position in call.tensors:
        leaves[position] = _meta(leaves[position])
    args, kwargs = call.with_leaves(leaves)
    if "device" in kwargs:
        kwargs["device"] = torch.device("meta")
    try:
        with torch.no_grad():
            formula = DECOMPOSITIONS.get(call.op)
            if formula is not None:
                results = formula(*args, **kwargs)
            else:
                results = rewrites.plain_call(call.op, args, kwargs)
    except NotImplementedError:
        return None
    tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    written = [tuple(tensor.shape) for tensor in call.info.written_tensors(args, kwargs)]
    return [tensor.dtype for tensor in tensors], written


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor  # a 0-d scalar
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _fake(
    mode: FakeTensorMode, tensor: torch.Tensor, name: str, dynamic: Sequence[bool] | None
) -> torch.Tensor:
    shape: Sequence[Any] = tensor.shape
    strides: Sequence[Any] = tensor.stride()
    if dynamic is not None and any(dynamic):
        assert mode.shape_env is not None
        geometry = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
        kinds = [DimDynamic.DUCK if symbol else DimDynamic.STATIC for symbol in dynamic]
        shape, strides, _ = mode.shape_env.create_symbolic_sizes_strides_storage_offset(
            geometry, LocalSource(name), symbolic_context=StatelessSymbolicContext(kinds)
        )
    with mode:
        return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)


def _guard(
    shape_env: ShapeEnv, inputs: Sequence[torch.Tensor], slots: Sequence[int]
) -> Callable[[Sequence[torch.Tensor]], bool]:
    placeholders: list[Any] = list(inputs[: len(slots)])
    guards = shape_env.produce_guards_expression(placeholders, ignore_static=False)
    if not guards:
        return lambda tensors: True
    return lambda tensors: bool(
        shape_env.evaluate_guards_expression(guards, [tensors[slot] for slot in slots])
    )


def _number_dtype(number: int | float, tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """A dtype that holds the number and does not promote tensors with dimensions."""
    if isinstance(number, int):
        return torch.int64
    wide = any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
    return torch.float64 if wide else torch.float32


def _fresh_results(
    info: OperatorInfo, results: Any
) -> tuple[tuple[torch.Tensor, ...], tuple[int | None, ...]]:
    if len(info.returns) == 0:
        return (), ()
    if len(info.returns) == 1 and not isinstance(results, (list, tuple)):
        results = (results,)
    # A single Tensor[] result stands for as many fresh results as it has elements.
    sources = info.returns if len(info.returns) == len(results) else itertools.repeat(None)
    outputs: list[torch.Tensor] = []
    fresh: list[int | None] = []
    for result, source in zip(results, sources, strict=False):
        if source is None and result is not None:
            fresh.append(len(outputs))
            outputs.append(result)
        else:
            fresh.append(None)
    return tuple(outputs), tuple(fresh)


def _own_outputs(module: torch.fx.GraphModule) -> None:
    """Clone outputs that would share memory with an input or another output."""
    graph = module.graph
    output = next(iter(graph.find_nodes(op="output")))
    storages = {
        node.meta["val"].untyped_storage()._cdata
        for node in graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.Tensor)
    }
    results = []
    for node in output.args[0]:
        value = node.meta["val"]
        storage = value.untyped_storage()._cdata
        if storage in storages:
            with graph.inserting_before(output):
                clone = graph.call_function(_aten.clone.default, (node,))
            clone.meta["val"] = value
            node = clone
        storages.add(storage)
        results.append(node)
    output.args = (tuple(results),)
    module.recompile()
