"""The arguments of a kernel: which buffers, sizes and host scalars it takes, in which order.

In: what a kernel asked for while its body was generated. Out: `KernelArgument`s and their operands.
Forbidden: emitting body code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.common import RemovedArg
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.symbol import SymT, symbol_is_type

from torchvk_compile.codegen.dtypes import storage_type
from torchvk_compile.codegen.lines import BoundOperand
from torchvk_compile.plan.graph_plan import ArgumentKind, KernelArgument

if TYPE_CHECKING:
    from torch._inductor.codegen.simd import IterationRangesRoot

ERRORS = "errors"


class ArgumentCollector:
    """Collects what one kernel needs beyond Inductor's own `KernelArgs`.

    Args:
        kernel: a kernel with `args` (Inductor's `KernelArgs`), `profile`, `index_dtype` and `sexpr`.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._host_scalars: dict[str, tuple[KernelArgument, BoundOperand]] = {}
        self._extents: dict[str, sympy.Expr] = {}
        self._assertions: dict[str, str] = {}

    # Asked for during code generation

    def host_scalar(self, name: str) -> str | None:
        """The argument that carries a zero-dimensional CPU tensor, or None if `name` is no such tensor."""
        if name in self._host_scalars:
            return _scalar_text(self._host_scalars[name][0], V.graph.get_dtype(name))
        device = V.graph.get_buffer(name).get_device() if _is_known(name) else None
        if device is None or device.type != "cpu":
            return None
        dtype = V.graph.get_dtype(name)
        kind, slang_type = _scalar_type(dtype, self._kernel.profile)
        argument = KernelArgument(f"scalar{len(self._host_scalars)}", kind, slang_type)
        operand = BoundOperand(scalar=(name, str(dtype).removeprefix("torch.")))
        self._host_scalars[name] = (argument, operand)
        return _scalar_text(argument, dtype)

    def extent(self, tree: IterationRangesRoot) -> str:
        """The number of iterations of a dimension: a literal, or an argument where it is dynamic.

        Pointwise kernels take it as an argument always, so that one kernel serves tensors of many sizes.
        """
        reduction = self._kernel.features.is_reduction()
        if isinstance(tree.numel, (int, sympy.Integer)) and (reduction or tree.numel == 1):
            return str(tree.numel)
        name = f"{tree.prefix}numel"
        self._extents[name] = tree.numel
        return name

    def size(self, name: str, value: sympy.Expr) -> str:
        """An argument called `name` that carries a size or stride in elements."""
        V.graph.wrapper_code.ensure_size_computed(value)
        self._extents[name] = value
        return name

    def assertion(self, message: str) -> tuple[str, str]:
        """Names of the error buffer and of the argument that holds the message's code."""
        if message not in self._assertions:
            self._assertions[message] = f"assertion{len(self._assertions)}"
        return ERRORS, self._assertions[message]

    # Asked for once the body is complete

    def arguments(self) -> tuple[KernelArgument, ...]:
        """Members of the argument struct, 8-byte ones first."""
        return tuple(argument for argument, _ in self._bound())

    def operands(self) -> tuple[BoundOperand, ...]:
        """What the arguments are bound to, in the order of `arguments`."""
        return tuple(operand for _, operand in self._bound())

    def reads(self) -> tuple[str, ...]:
        args = self._kernel.args
        names = OrderedSet(name for name in args.input_buffers if name not in self._host_scalars)
        names.update(self._inplace_names())
        return tuple(names)

    def writes(self) -> tuple[str, ...]:
        args = self._kernel.args
        names = OrderedSet(
            name
            for name, inner in args.output_buffers.items()
            if not isinstance(inner, RemovedArg) and name not in args.inplace_buffers
        )
        names.update(self._inplace_names())
        return tuple(names)

    def aliases(self) -> dict[str, str]:
        """The name in `reads` and `writes` of buffers that are overwritten in place or mutated under another name."""
        names = dict(V.graph.scheduler.mutation_real_name)
        for buffer in self._kernel.args.inplace_buffers.values():
            if not isinstance(buffer, RemovedArg):
                names |= dict.fromkeys(buffer.other_names, buffer.other_names[-1])
        return names

    def _inplace_names(self) -> list[str]:
        return [
            buffer.other_names[-1]
            for buffer in self._kernel.args.inplace_buffers.values()
            if not isinstance(buffer, RemovedArg)
        ]

    def _bound(self) -> list[tuple[KernelArgument, BoundOperand]]:
        index_kind: ArgumentKind = "i64" if self._kernel.index_dtype == "int64_t" else "i32"
        bound = [*self._pointers()]
        for size, name in self._kernel.args.sizevars.items():
            bound.append(self._size(name, size, index_kind))
        for name, numel in self._extents.items():
            bound.append(
                (
                    KernelArgument(name, index_kind, self._kernel.index_dtype),
                    BoundOperand(value=numel),
                )
            )
        bound += self._host_scalars.values()
        if self._assertions:
            bound.append((KernelArgument(ERRORS, "pointer", "uint*"), BoundOperand(buffer=ERRORS)))
        for message, name in self._assertions.items():
            bound.append((KernelArgument(name, "i32", "int"), BoundOperand(assertion=message)))
        return sorted(bound, key=lambda pair: -pair[0].nbytes)

    def _pointers(self) -> list[tuple[KernelArgument, BoundOperand]]:
        args = self._kernel.args
        pairs: dict[str, str] = {}
        for buffer in args.inplace_buffers.values():
            if not isinstance(buffer, RemovedArg):
                pairs[buffer.inner_name] = buffer.other_names[-1]
        for outer, inner in (*args.input_buffers.items(), *args.output_buffers.items()):
            if not isinstance(inner, RemovedArg) and outer not in args.inplace_buffers:
                pairs[inner] = outer
        result = []
        for inner, outer in pairs.items():
            slang_type = f"{storage_type(V.graph.get_dtype(outer))}*"
            result.append(
                (KernelArgument(inner, "pointer", slang_type), BoundOperand(buffer=outer))
            )
        return result

    def _size(
        self, name: str, size: sympy.Expr, index_kind: ArgumentKind
    ) -> tuple[KernelArgument, BoundOperand]:
        V.graph.wrapper_code.ensure_size_computed(size)
        if isinstance(size, sympy.Symbol) and symbol_is_type(
            size, (SymT.UNBACKED_FLOAT, SymT.FLOAT)
        ):
            kind, slang_type = _scalar_type(torch.float64, self._kernel.profile)
            return KernelArgument(name, kind, slang_type), BoundOperand(
                scalar=(str(size), "float64")
            )
        return KernelArgument(name, index_kind, self._kernel.index_dtype), BoundOperand(value=size)


def _is_known(name: str) -> bool:
    return V.graph.try_get_buffer(name) is not None


def _scalar_text(argument: KernelArgument, dtype: torch.dtype) -> str:
    return f"({argument.name} != 0)" if dtype is torch.bool else argument.name


def _scalar_type(dtype: torch.dtype, profile: Any) -> tuple[ArgumentKind, str]:
    if dtype is torch.float64 and profile.float64:
        return "f64", "double"
    if dtype.is_floating_point:
        return "f32", "float"
    if dtype is torch.int64:
        return "i64", "int64_t"
    return "i32", "int"
