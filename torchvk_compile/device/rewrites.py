"""How calls are traced whose operator has no decomposition in torch, or whose numbers vary.

In: an operator and its arguments, some numbers replaced by 0-d tensors. Out: its result, in terms
of operators the compiler lowers. Forbidden: device work; anything but tracing.

``_foreach`` operators become their elements' operators, all in one graph. ``alpha``, ``value`` and
``weight`` are Python numbers in ATen; the formulas here also take tensors, so that an optimizer's
step size can change without compiling again. For random operators see `random_rewrites`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchvk_compile.device import random_rewrites
from torchvk_compile.lowering import optimizer_steps

_aten = torch.ops.aten

_FOREACH = "_foreach_"


@dataclass(frozen=True)
class _Name:
    """An overload's name taken apart: ``_foreach_add_.Scalar`` is add, foreach, in place."""

    base: str
    foreach: bool
    in_place: bool
    out: bool


@functools.cache
def _name(op: torch._ops.OpOverload) -> _Name:
    full = op._schema.name.partition("::")[2]
    written = [
        a for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    out = any(a.kwarg_only for a in written)
    in_place = bool(written) and not out
    foreach = full.startswith(_FOREACH)
    base = full.removeprefix(_FOREACH) if foreach else full
    return _Name(base.removesuffix("_") if in_place else base, foreach, in_place, out)


def variable_numbers(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int, ...]:
    """Positions, among the call's flattened arguments, of numbers that may become tensors."""
    base = _name(op).base
    if base not in _FORMULAS and op not in optimizer_steps.IN_PLACE:
        return ()
    # x**2 is a product, x**y is not: integer exponents stay fixed.
    types = (float,) if base == "pow" else (int, float)
    positions = []
    position = 0
    names = [argument.name for argument in op._schema.arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for leaf in pytree.tree_leaves(value):
            if type(leaf) in types and name in _NUMBER_ARGUMENTS:
                positions.append(position)
            position += 1
    return tuple(positions)


def plain_call(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `op` as a kernel is called: with Python numbers also where it expects tensors."""
    for argument, value in zip(op._schema.arguments, args, strict=False):
        if isinstance(value, (bool, int, float, complex)) and "Tensor" in str(argument.type):
            return op.overloadpacket(*args, **kwargs)
    return op(*args, **kwargs)


def varies_every_step(op: torch._ops.OpOverload) -> bool:
    """Whether an optimizer calls this with another number at every step."""
    return op._overloadname == "ScalarList" or _name(op).base in ("addcdiv", "addcmul")


def call(
    op: torch._ops.OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtypes: Sequence[torch.dtype] | None,
) -> Any:
    """Call `op` inside a trace.

    Args:
        op, args, kwargs: the call.
        dtypes: dtypes of its results if numbers were replaced by tensors, which may promote
            differently; None if none were.
    """
    random_rule = random_rewrites.RULES.get(op)
    if random_rule is not None:
        return random_rule(*args, **kwargs)
    if op in optimizer_steps.IN_PLACE:
        return _write(op, args, kwargs)
    name = _name(op)
    if name.foreach:
        return _foreach(op, name, args, kwargs, dtypes)
    if dtypes is None:
        return plain_call(op, args, kwargs)
    given = _named(op, args, kwargs)
    target = given["self"] if name.in_place else given.pop("out", None)
    result = _FORMULAS[name.base](**_in_float32(name.base, given))
    return result.to(dtypes[0]) if target is None else target.copy_(result)


def _write(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute what an optimizer's operator writes, then write it."""
    results = optimizer_steps.IN_PLACE[op](*args, **kwargs)
    # All reads come before the first write: lists may share memory.
    for written, new in zip(args, results, strict=False):
        for target, value in zip(_as_list(written), _as_list(new), strict=False):
            if target is not value:
                target.copy_(value)
    return args[0] if op._schema.returns else ()


def _as_list(value: Any) -> Sequence[torch.Tensor]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _named(
    op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    names = [argument.name for argument in op._schema.arguments]
    return dict(zip(names, args, strict=False)) | kwargs


def _foreach(
    op: torch._ops.OpOverload,
    name: _Name,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtypes: Sequence[torch.dtype] | None,
) -> Any:
    given = _named(op, args, kwargs)
    # Not always `self`: aten._foreach_pow.ScalarAndTensor has a number there.
    count = next(len(value) for value in given.values() if isinstance(value, (list, tuple)))
    formula = _FORMULAS.get(name.base) or _ELEMENT_FORMULAS.get(name.base)
    results = []
    for i in range(count):
        element = {
            _ELEMENT_ARGUMENTS.get((name.base, key), _ELEMENT_ARGUMENTS.get(key, key)): (
                value[i] if isinstance(value, (list, tuple)) else value
            )
            for key, value in given.items()
        }
        if formula is not None:
            wide = element if dtypes is None else _in_float32(name.base, element)
            result = formula(**wide)
        else:
            result = getattr(_aten, name.base)(*element.values())
        if dtypes is not None and not name.in_place:
            result = result.to(dtypes[i])
        results.append(result)
    if not name.in_place:
        return results
    # All reads come before the first write: lists may share memory.
    for target, result in zip(given["self"], results, strict=True):
        target.copy_(result)
    return ()


def _in_float32(base: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """16-bit floats as float32, where eager PyTorch does not round the number to 16 bits either."""
    if base not in _UNROUNDED:
        return arguments
    half = (torch.float16, torch.bfloat16)
    return {
        name: value.float() if isinstance(value, torch.Tensor) and value.dtype in half else value
        for name, value in arguments.items()
    }


def _add(self: torch.Tensor, other: Any, alpha: Any = 1) -> torch.Tensor:
    return self + _scaled(other, alpha, self)


def _sub(self: torch.Tensor, other: Any, alpha: Any = 1) -> torch.Tensor:
    return self - _scaled(other, alpha, self)


def _rsub(self: torch.Tensor, other: Any, alpha: Any = 1) -> torch.Tensor:
    return torch.neg(_scaled(self, alpha, self)) + other


def _scaled(value: Any, factor: Any, like: torch.Tensor) -> Any:
    if isinstance(factor, (int, float)) and factor == 1:
        return value
    if isinstance(value, torch.Tensor) and value.device == like.device:
        return value * factor
    return _one(like) * value * factor


def _one(like: torch.Tensor) -> torch.Tensor:
    """1 on the device: arithmetic between two numbers has to happen there, not on the host."""
    return torch.ones((), dtype=torch.result_type(like, 1.0), device=like.device)


def _mul(self: torch.Tensor, other: Any) -> torch.Tensor:
    return self * other


def _div(self: torch.Tensor, other: Any, rounding_mode: str | None = None) -> torch.Tensor:
    if rounding_mode is None:
        return torch.div(
            self, other
        )  # with a mode, Inductor converts to the common whole type first
    return torch.div(self, other, rounding_mode=rounding_mode)


def _comparison(name: str) -> Callable[..., torch.Tensor]:
    operation = getattr(torch, name)

    def formula(self: torch.Tensor, other: Any) -> torch.Tensor:
        return operation(self, other)

    return formula


def _pow(self: Any, exponent: Any) -> torch.Tensor:
    return torch.pow(self, exponent)


def _maximum(self: torch.Tensor, other: Any) -> torch.Tensor:
    return torch.clamp_min(self, other)


def _minimum(self: torch.Tensor, other: Any) -> torch.Tensor:
    return torch.clamp_max(self, other)


def _addcmul(
    self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any = 1
) -> torch.Tensor:
    return self + _scaled(tensor1, value, self) * tensor2


def _addcdiv(
    self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any = 1
) -> torch.Tensor:
    return self + _scaled(tensor1 / tensor2, value, self)


def _lerp(self: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
    # The two branches of ATen's lerp keep both ends exact (aten/src/ATen/native/Lerp.h).
    difference = end - self
    near_start = self + difference * weight
    if isinstance(weight, torch.Tensor):
        weight = _one(self) * weight
        near_end = end - difference * (1 - weight)
        return torch.where(weight.abs() < 0.5, near_start, near_end)
    return near_start if abs(weight) < 0.5 else end - difference * (1 - weight)


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return src


def _zero(self: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(self)


def _norm(self: torch.Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(self, ord, dtype=dtype)


_FORMULAS: dict[str, Callable[..., torch.Tensor]] = {
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    **{name: _comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
"""Formulas that hold for numbers and for 0-d CPU tensors in place of them.

A device tensor always stands first: Inductor takes a result's device from the first operand.
"""

_UNROUNDED = frozenset(
    {"add", "sub", "subtract", "rsub", "mul", "div", "addcmul", "addcdiv", "lerp"}
)
"""Operators of `_FORMULAS` that compute 16-bit floats in float32, numbers included (ATen's opmath type)."""

_ELEMENT_FORMULAS: dict[str, Callable[..., torch.Tensor]] = {
    "copy": _copy,
    "zero": _zero,
    "norm": _norm,
    "maximum": _maximum,
    "clamp_min": _maximum,
    "minimum": _minimum,
    "clamp_max": _minimum,
}
"""Elements of ``_foreach`` operators whose plain operators have other arguments or names."""

_ELEMENT_ARGUMENTS: dict[Any, str] = {
    "scalar": "other",
    "scalars": "other",
    ("addcmul", "scalars"): "value",
    ("addcdiv", "scalars"): "value",
    ("lerp", "tensors1"): "end",
    ("lerp", "weights"): "weight",
    ("lerp", "scalars"): "weight",
    ("pow", "scalar"): "exponent",
}
"""Names of ``_foreach`` arguments in the formulas, for one operator or for all."""

_NUMBER_ARGUMENTS = frozenset(
    {"other", "scalar", "scalars", "alpha", "value", "weight", "exponent", "lr"}
)
