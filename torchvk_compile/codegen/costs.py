"""What a dispatch must move and compute: bytes read and written, floating-point operations.

In: the scheduler nodes a kernel was generated from. Out: a `Cost`, exact up to the index expressions' shape.
Forbidden: measuring, predicting times, changing what is generated.

Every element of a buffer counts once, however often a kernel reads it: this is the traffic that no cache can
save. An operation counts once per element it is computed for: additions, multiplications, divisions, minima,
maxima and elementary functions each as one, a fused multiply-add as two; moves, selections, comparisons, sign
changes, casts and arithmetic on indices as none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.dependencies import MemoryDep
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

_ZERO = sympy.Integer(0)

# Results that are a float without being computed.
_FREE = frozenset(
    ("abs", "copysign", "identity", "inline_asm_elementwise", "ldexp", "neg", "rand", "randn")
)

_REDUCTION_OPERATIONS = {
    # mean += d / n and m2 += d * (x - mean), with d = x - mean and n += 1
    "welford_reduce": 7,
    # maximum, two subtractions, two exponentials, one multiplication, one addition
    "online_softmax_reduce": 7,
    "dot": 2,
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one dispatch; sizes in bytes, expressions over the graph's symbols."""

    read_bytes: sympy.Expr = _ZERO
    written_bytes: sympy.Expr = _ZERO
    flops: sympy.Expr = _ZERO

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.flops + other.flops,
        )


FREE = Cost()


def cost_of_kernel(
    nodes: Sequence[Any], reads: Iterable[str], writes: Iterable[str], aliases: Mapping[str, str]
) -> Cost:
    """Cost of a kernel without the product a template computes.

    Args:
        nodes: its scheduler nodes.
        reads, writes: the buffers it touches.
        aliases: for buffers that go by several names in the nodes, the name in `reads` and `writes`.
    """
    write_deps = [dep for node in nodes for dep in node.read_writes.writes]
    # What one fused node hands to another stays in registers.
    made_here = {dep.name for dep in write_deps}
    read_deps = [
        dep for node in nodes for dep in node.read_writes.reads if dep.name not in made_here
    ]
    return Cost(
        _touched_bytes(reads, read_deps, aliases),
        _touched_bytes(writes, write_deps, aliases),
        sum((_operations(node) for node in nodes), _ZERO),
    )


def bytes_of_nodes(nodes: Iterable[ir.IRNode]) -> sympy.Expr:
    """Bytes of the elements of these tensors."""
    return sum((sympy_product(n.get_size()) * n.get_dtype().itemsize for n in nodes), _ZERO)


def _touched_bytes(
    names: Iterable[str], deps: Iterable[Any], aliases: Mapping[str, str]
) -> sympy.Expr:
    touched: dict[str, set[Any]] = {name: set() for name in names}
    for dep in deps:
        name = aliases.get(dep.name, dep.name)
        if name in touched:
            touched[name].add(dep)
    return sum((_buffer_bytes(name, found) for name, found in touched.items() if found), _ZERO)


def _buffer_bytes(name: str, deps: set[Any]) -> sympy.Expr:
    whole = V.graph.get_numel(name)
    count = whole
    if all(isinstance(dep, MemoryDep) for dep in deps):
        count = sum((_elements(dep) for dep in deps), _ZERO)
        sizevars = V.graph.sizevars
        if sizevars.statically_known_leq(whole, count):
            count = whole
        elif not sizevars.statically_known_leq(count, whole):
            count = sympy.Min(whole, count)
    return count * V.graph.get_dtype(name).itemsize


def _elements(dep: MemoryDep) -> sympy.Expr:
    # Where the place follows from data, every iteration touches one element.
    return sympy_product(dep.size) if dep.is_indirect() else dep.get_numel()


def _operations(node: Any) -> sympy.Expr:
    body = getattr(node, "_body", None)
    if body is None:
        return _ZERO
    counter = _OperationCounter()
    indices = [[_ZERO] * len(sizes) for sizes in body.sizes]
    with V.set_ops_handler(counter):
        body(*indices)
    return counter.count * sympy_product([size for sizes in body.sizes for size in sizes])


class _OperationCounter(DefaultHandler):
    """Runs a loop body on dtypes instead of values, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = _result_dtype(args)
        if name not in _FREE and result is not None and result.is_floating_point:
            self.count += 2 if name == "fma" else 1
        return result

    def load(self, name: str, index: sympy.Expr) -> Any:
        return V.graph.get_dtype(name)

    def constant(self, value: Any, dtype: torch.dtype) -> Any:
        return dtype

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Any:
        return dtype

    def to_dtype(self, x: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
        return dtype

    def to_dtype_bitcast(self, x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> Any:
        return dtype

    def masked(self, mask: Any, body: Any, other: Any) -> Any:
        return body()

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return _result_dtype((x, y))

    def indirect_indexing(self, *args: Any, **kwargs: Any) -> Any:
        return _ZERO

    def store(self, *args: Any, **kwargs: Any) -> None:
        pass

    def store_reduction(self, *args: Any, **kwargs: Any) -> None:
        pass

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any
    ) -> Any:
        if src_dtype.is_floating_point and reduction_type not in ("any", "xor_sum"):
            self.count += _REDUCTION_OPERATIONS.get(reduction_type, 1)
        parts = {"welford_reduce": 3, "welford_combine": 3, "online_softmax_reduce": 2}
        return (dtype,) * parts[reduction_type] if reduction_type in parts else dtype

    def scan(self, dtypes: tuple[torch.dtype, ...], combine_fn: Any, values: Any) -> Any:
        combine_fn(tuple(values), tuple(values))
        return dtypes

    def sort(self, dtypes: tuple[torch.dtype, ...], values: Any, *args: Any) -> Any:
        return dtypes

    def frexp(self, x: Any) -> Any:
        return x, torch.int32

    def _predicate(self, *args: Any) -> torch.dtype:
        return torch.bool

    eq = ne = lt = le = gt = ge = isnan = isinf = signbit = _predicate
    logical_and = logical_or = logical_not = logical_xor = _predicate


def _result_dtype(args: Iterable[Any]) -> torch.dtype | None:
    dtypes = [arg for arg in args if isinstance(arg, torch.dtype)]
    result = None
    for dtype in dtypes:
        result = dtype if result is None else torch.promote_types(result, dtype)
    return result
