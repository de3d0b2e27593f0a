"""The first call of a signature: check it, trace it, compile it, and decide what may vary later.

In: an operator call that `eager` has not met. Out: a `Runner` for it and for calls like it.
Forbidden: anything needed on the path of repeated calls.

Calls of one operator with the same dtypes, ranks and fixed arguments form a family. Its first
member is compiled as it is. When a second one comes, what differs becomes variable: sizes become
symbols of the graph, numbers become inputs. So a loop whose last batch is smaller,
or whose step size changes, compiles twice and then no more.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvk_compile import torch_compat
from torchvk_compile.compile_lock import Deputy
from torchvk_compile.device import cpu_fallback, eager, physical
from torchvk_compile.device.operators import OperatorInfo
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.log import logger

_CANNOT_TRACE = "INTERNAL ASSERT FAILED"  # torch's way to say that an op has no functional form


@dataclass(frozen=True)
class _Variant:
    """One compiled graph of a family.

    Attributes:
        fits: whether it serves tensors of another geometry; None for just the one it was made for.
        numbers: the call's numbers, with None where the graph takes the number as an input.
        runner: runs it.
        director: says how the runtime runs it by itself, if it can.
    """

    fits: Callable[[Sequence[torch.Tensor]], bool] | None
    numbers: tuple[int | float | None, ...]
    runner: eager.Runner
    director: eager.Director | None

    def serves(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int | float]) -> bool:
        if self.fits is None or not self.fits(tensors):
            return False
        return all(
            own is None or _same(own, given)
            for own, given in zip(self.numbers, numbers, strict=True)
        )


@dataclass
class _Family:
    """What calls of one kind have had in common so far, and the graphs made for them."""

    shapes: list[torch.Size]
    dynamic: list[list[bool]]
    numbers: list[int | float]
    variable: list[bool]
    variants: list[_Variant] = field(default_factory=list)

    def absorb(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int | float]) -> None:
        """Let everything vary in which this call differs from the family's first one."""
        for flags, shape, tensor in zip(self.dynamic, self.shapes, tensors, strict=True):
            for dimension, extent in enumerate(tensor.shape):
                flags[dimension] |= extent != shape[dimension]
        for i, value in enumerate(numbers):
            self.variable[i] |= not _same(value, self.numbers[i])


_families: dict[tuple[Any, ...], _Family] = {}
_compiler = Deputy(
    "torchvk-eager-compiler",
    # A lowering may differentiate. It must do so in its own thread: autograd's thread for the device may be waiting
    # for this very compilation.
    functools.partial(torch.autograd.set_multithreading_enabled, False),
)
"""No autocast, inference mode, default device or compilation in progress of the calling thread leaks into a trace."""


def compile_call(
    op: torch._ops.OpOverload,
    info: OperatorInfo,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: list[torch.Tensor],
    key: tuple[Any, ...],
) -> eager.Runner:
    """A runner for the call, remembered under `key` for calls of the same signature.

    Raises:
        UnsupportedOperatorError: no kernel, and CPU fallbacks are not allowed.
        RuntimeError, …: what torch raises for such arguments.
    """
    written = list(info.written_tensors(args, kwargs))
    _check_devices(info, found, written)
    for tensor in written:
        eager.refuse_self_overlap(tensor)
    # In a forked process the compiler's thread does not exist, and would be waited for in vain.
    physical.refuse_in_forked_process()
    return _compiler.run(_compile, op, info, args, kwargs, found, key)


def clear() -> None:
    """Forget all families."""
    _families.clear()


def _compile(
    op: torch._ops.OpOverload,
    info: OperatorInfo,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: list[torch.Tensor],
    key: tuple[Any, ...],
) -> eager.Runner:
    from torchvk_compile.device import one_op_graph

    tensors = ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in found)
    logger("eager").info("compiling %s for %s", info.name, tensors or "no tensor")
    call = one_op_graph.Call.of(op, info, args, kwargs)
    dtypes: list[torch.dtype] = []
    if (geometry := one_op_graph.result_geometry(call)) is not None:
        dtypes, shapes = geometry
        written = list(info.written_tensors(args, kwargs))
        if [tuple(tensor.shape) for tensor in written] != shapes:
            for tensor, shape in zip(written, shapes, strict=True):
                _resize_output(tensor, shape)
            return lambda found, args, kwargs: eager.run(op, args, kwargs)
    try:
        variant = _variant(call, found, dtypes)
        runner, director = variant.runner, variant.director
        if _takes_any_numbers(call, variant):
            common = eager.key_of_any_numbers(info, args, kwargs)
            if common is not None:
                eager.remember_any_numbers(common, runner)
    except UnsupportedOperatorError as refusal:
        runner, director = cpu_fallback.runner(op, info, refusal), None
    eager.remember(key, runner, director)
    return runner


def _takes_any_numbers(call: Any, variant: _Variant) -> bool:
    """Whether the graph takes every float of the call as an input."""
    inputs = {at for at, kept in zip(call.numbers, variant.numbers, strict=True) if kept is None}
    floats = {at for at, leaf in enumerate(call.leaves) if isinstance(leaf, float)}
    return bool(floats) and floats <= inputs


def _variant(call: Any, found: list[torch.Tensor], dtypes: list[torch.dtype]) -> _Variant:
    numbers = [call.leaves[position] for position in call.numbers]
    same_view = _same_view(call.info, found)
    family_key = _family_key(call, found, same_view)
    family = _families.get(family_key)
    first = family is None
    if family is None:
        from torchvk_compile.device import rewrites

        family = _families[family_key] = _Family(
            shapes=[tensor.shape for tensor in found],
            dynamic=[[False] * tensor.dim() for tensor in found],
            numbers=numbers,
            variable=[rewrites.varies_every_step(call.op)] * len(numbers),
        )
    else:
        for variant in family.variants:
            if variant.serves(found, numbers):
                return variant
        family.absorb(found, numbers)
    dynamic = None if first else family.dynamic
    variant = _compiled(call, same_view, dynamic, numbers, family.variable, dtypes)
    family.variants.append(variant)
    return variant


def _compiled(
    call: Any,
    same_view: Sequence[int],
    dynamic: list[list[bool]] | None,
    numbers: list[int | float],
    variable: list[bool],
    dtypes: list[torch.dtype],
) -> _Variant:
    from torchvk_compile.backend import compile_graph, register_with_inductor
    from torchvk_compile.device import one_op_graph

    register_with_inductor()  # from then on torch knows the shapes of all operators
    positions = [p for p, varies in zip(call.numbers, variable, strict=True) if varies]
    try:
        graph = one_op_graph.trace(call, same_view, dynamic, positions, dtypes)
    except (NotImplementedError, RuntimeError) as error:
        unknown = isinstance(error, NotImplementedError) or _CANNOT_TRACE in str(error)
        if unknown or torch_compat.depends_on_data(error):
            raise _unsupported(call, error) from error
        raise
    try:
        compiled = compile_graph(graph.module, graph.example_inputs)
    except UnsupportedOperatorError as refusal:
        if refusal.op == call.info.name:
            raise
        raise UnsupportedOperatorError(
            call.info.name,
            dtype=refusal.dtype,
            shape=refusal.shape,
            reason=": ".join(part for part in (f"it needs {refusal.op}", refusal.reason) if part),
        ) from refusal
    compiled = torch_compat.without_bookkeeping(compiled)
    read = [
        (_path(call, position), dtype)
        for position, dtype in zip(positions, graph.number_dtypes, strict=True)
    ]
    runner = _runner(call, graph, read, compiled)
    kept = tuple(None if varies else n for n, varies in zip(numbers, variable, strict=True))
    return _Variant(graph.fits(), kept, runner, _director(call, graph, read, compiled))


_Numbers = Sequence[tuple[Callable[[tuple[Any, ...], dict[str, Any]], float], torch.dtype]]
"""How to find a call's varying numbers, and the dtypes that the graph takes them in."""


def _number(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A 0-d CPU tensor; a number beyond float32 becomes infinite, where torch would refuse it."""
    if dtype is torch.float32:
        return torch.scalar_tensor(value, dtype=torch.float64, device="cpu").to(dtype)
    return torch.scalar_tensor(value, dtype=dtype, device="cpu")


def _runner(
    call: Any, graph: Any, numbers: _Numbers, compiled: Callable[[list[Any]], Sequence[Any]]
) -> eager.Runner:
    slots = graph.slots
    all_tensors = len(slots) == len(call.tensors)
    results = _results(call.info, graph.fresh)

    def run(found: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = found if all_tensors else [found[slot] for slot in slots]
        for path, dtype in numbers:
            inputs.append(_number(path(args, kwargs), dtype))
        return results(compiled(inputs), args, kwargs)

    return run


def _director(
    call: Any, graph: Any, numbers: _Numbers, compiled: Callable[[list[Any]], Sequence[Any]]
) -> eager.Director | None:
    """How the runtime computes calls by itself, if the graph is one plan and its results are simple."""
    module = getattr(compiled, "__globals__", {})
    sole = module.get("SOLE_PLAN") if module.get("call") is compiled else None
    slots = graph.slots
    simple = _simple_results(call, graph)
    # Where a view occurs twice, the graph serves such calls only, and signatures do not tell.
    if sole is None or simple is None or len(slots) != len(call.tensors):
        return None
    if any(place < len(slots) for place in sole.scalars):
        return None  # a number that is a tensor on the CPU: signatures do not tell its value
    returns, results = simple
    if returns != "argument":
        results = tuple(sole.outputs[index] for index in results)

    def direct(
        found: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> eager.DirectCall:
        symbols = tuple(found[slots[place]].shape[dimension] for place, dimension in sole.symbols)
        read = [numbers[place - len(slots)] for place in sole.scalars]
        scalars = [_number(path(args, kwargs), dtype) for path, dtype in read]
        return eager.DirectCall(
            plan=sole.plan.runtime_plan,
            label=sole.plan.plan,
            call=(sole.plan, symbols),
            inputs=tuple(slots[place] for place in sole.inputs),
            values=sole.plan.values(symbols, scalars),
            item_bytes=tuple(t.itemsize for t in found) if call.info.written else (),
            returns=returns,
            results=results,
        )

    return direct


def _simple_results(call: Any, graph: Any) -> tuple[str, tuple[int, ...]] | None:
    """`DirectCall`'s ``returns`` and ``results``, these of the graph; None if it has no word for them."""
    info = call.info
    if not info.returns:
        return "nothing", ()
    if len(info.returns) == 1 and info.returns[0] is not None:
        written = next(info.written_tensors(*call.with_leaves(call.leaves)))
        places = [i for i, at in enumerate(call.tensors) if call.leaves[at] is written]
        return "argument", (places[0],)
    if any(source is not None for source in info.returns) or None in graph.fresh:
        return None
    if len(info.returns) == 1:
        return "list" if info.returns_list else "one", tuple(graph.fresh)
    return "tuple", tuple(graph.fresh)


def _results(
    info: OperatorInfo, fresh: Sequence[int | None]
) -> Callable[[Sequence[torch.Tensor], tuple[Any, ...], dict[str, Any]], Any]:
    """How to make what the operator returns from the graph's outputs and the written arguments."""
    if not info.returns:
        return lambda outputs, args, kwargs: None
    if all(source is not None for source in info.returns):
        if len(info.returns) == 1:
            return lambda outputs, args, kwargs: next(info.written_tensors(args, kwargs))
        return lambda outputs, args, kwargs: tuple(info.written_tensors(args, kwargs))
    if len(info.returns) == 1 and info.returns_list:
        return lambda outputs, args, kwargs: list(outputs)
    if len(info.returns) == 1:
        return lambda outputs, args, kwargs: outputs[0]
    sources = info.returns

    def mixed(
        outputs: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor | None, ...]:
        written = info.written_by_name(args, kwargs)
        return tuple(
            outputs[index] if index is not None else written.get(source or "")
            for index, source in zip(fresh, sources, strict=True)
        )

    return mixed


def _path(call: Any, position: int) -> Callable[[tuple[Any, ...], dict[str, Any]], float]:
    """How to find the flattened argument at `position` in a call of the same structure."""
    args, kwargs = call.with_leaves(list(range(len(call.leaves))))
    for i, value in enumerate(args):
        if isinstance(value, (list, tuple)):
            if position in value:
                j = list(value).index(position)
                return lambda args, kwargs: args[i][j]
        elif value == position:
            return lambda args, kwargs: args[i]
    for name, value in kwargs.items():
        if isinstance(value, (list, tuple)):
            if position in value:
                j = list(value).index(position)
                return lambda args, kwargs: kwargs[name][j]
        elif value == position:
            return lambda args, kwargs: kwargs[name]
    raise AssertionError(f"{call.info.name} has no argument {position}")


def _same_view(info: OperatorInfo, found: list[torch.Tensor]) -> tuple[int, ...]:
    from torchvk_compile.device import aliasing

    return aliasing.pattern(found) if info.written else tuple(range(len(found)))


def _family_key(
    call: Any, found: list[torch.Tensor], same_view: tuple[int, ...]
) -> tuple[Any, ...]:
    parts: list[Any] = [call.op, str(call.spec), same_view, eager.settings()]
    numbers = frozenset(call.numbers)
    for position, leaf in enumerate(call.leaves):
        if isinstance(leaf, torch.Tensor):
            parts.append((leaf.dtype, leaf.dim(), leaf.get_device(), leaf.is_contiguous()))
        elif position in numbers:
            parts.append(type(leaf))
        elif isinstance(leaf, (float, complex)):
            parts.append(repr(leaf))
        else:
            parts.append((type(leaf), leaf))
    return tuple(parts)


def _same(one: int | float, other: int | float) -> bool:
    """Whether two numbers are the same constant: -0.0 is not 0.0, NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one.hex() == other.hex()
    return type(one) is type(other) and one == other


def _check_devices(
    info: OperatorInfo, found: list[torch.Tensor], written: list[torch.Tensor]
) -> None:
    # A 0-d CPU tensor may be read as a number, but not written.
    devices = {t.device for t in found if t.dim() > 0 or t.device.type != "cpu"}
    devices |= {t.device for t in written}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices), reverse=True))
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{names}! (in {info.name})"
        )


def _resize_output(tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape == shape:
        return
    if tensor.numel() > 0:
        warnings.warn(
            "An output with one or more elements was resized since it had shape "
            f"{list(tensor.shape)}, which does not match the required output shape {list(shape)}. "
            "torch deprecates this: resize a tensor that is to be reused as out= to zero elements "
            "first, with t.resize_(0).",
            stacklevel=2,
        )
    tensor.resize_(shape)


def _unsupported(call: Any, error: BaseException) -> UnsupportedOperatorError:
    first = next((leaf for leaf in call.leaves if isinstance(leaf, torch.Tensor)), None)
    told = str(error).splitlines()
    return UnsupportedOperatorError(
        call.info.name,
        dtype=None if first is None else first.dtype,
        shape=None if first is None else first.shape,
        reason=told[0] if told and _CANNOT_TRACE not in told[0] else "torch cannot trace it",
    )
