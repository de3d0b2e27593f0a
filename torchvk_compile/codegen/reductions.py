"""Reductions of a kernel: accumulate along the loop, combine across the invocations of a row.

In: values inside the reduction loop. Out: one result per row, known to all its invocations. Forbidden: memory accesses.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.codegen.common import CSEVariable

from torchvk_compile.codegen.dtypes import compute_type

if TYPE_CHECKING:
    from torch._inductor.codegen.common import IndentedBuffer

    from torchvk_compile.codegen.layout import WorkgroupLayout

Value = Any

_REDUCERS = {
    "sum": "Sum",
    "prod": "Prod",
    "xor_sum": "XorSum",
    "max": "Max",
    "min": "Min",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "welford_reduce": "Welford",
    "welford_combine": "Welford",
    "online_softmax_reduce": "OnlineSoftmax",
}


class ReductionCodegen:
    """The part of `SlangKernel` that knows `torchvk_reduce.slang`."""

    layout: WorkgroupLayout
    prefix: IndentedBuffer
    compute: IndentedBuffer
    after_loop: IndentedBuffer
    vector_loads: IndentedBuffer
    vector_stores: IndentedBuffer
    kept_after_loop: set[CSEVariable]
    cse: Any
    _summing: bool

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Value
    ) -> Value:
        """Reduce `value` over the reduction dimension.

        Returns:
            One variable, or a tuple: (mean, m2, weight) for the Welford kinds, (maximum, sum) for online softmax.
        """
        if self._summing:
            return value
        key = (src_dtype, reduction_type, value)
        if key in self.cse.reduction_cache:
            return self.cse.reduction_cache[key]
        result = self._reduce(dtype, src_dtype, reduction_type, value)
        self.cse.reduction_cache[key] = result
        self.kept_after_loop.update(result if isinstance(result, tuple) else (result,))
        return result

    def _reduce(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Value
    ) -> Value:
        if reduction_type == "any":
            state = self._combined("Any", f"bool({value})", "bool")
            return self._result(state, torch.bool)
        if reduction_type not in _REDUCERS:
            raise NotImplementedError(f"reduction {reduction_type!r}")
        if reduction_type.startswith("welford"):
            return self._welford(dtype, reduction_type, value)
        if reduction_type == "online_softmax_reduce":
            return self._online_softmax(value)
        if reduction_type.startswith("arg"):
            return self._arg(dtype, src_dtype, reduction_type, value)
        register = _accumulator(dtype)
        scalar = compute_type(register)
        if reduction_type in ("max", "min") and register is torch.float32:
            reducer = f"{_REDUCERS[reduction_type]}Float"
            state = self._combined(reducer, f"extreme({value})", "Extreme")
            return self._result(f"{state}.result()", register)
        state = self._combined(
            f"{_REDUCERS[reduction_type]}<{scalar}>", f"{scalar}({value})", scalar
        )
        if dtype is torch.bool:
            return self._result(f"({state} != 0)", torch.bool)
        return self._result(state, register)

    def _welford(
        self, dtype: torch.dtype, reduction_type: str, value: Value
    ) -> tuple[CSEVariable, ...]:
        register = _accumulator(dtype)
        scalar = compute_type(register)
        if reduction_type == "welford_reduce" and self.layout.rounds:
            return self._moments_of_kept_row(register, value)
        if reduction_type == "welford_reduce":
            parts = [f"{scalar}({value})", f"{scalar}(0)", f"{scalar}(1)"]
        else:
            parts = [f"{scalar}({part})" for part in value]
        fresh = f"{{ {', '.join(parts)} }}"
        state = self._combined(f"Welford<{scalar}>", fresh, f"Moments<{scalar}>")
        return tuple(
            self._result(f"{state}.{field}", register) for field in ("mean", "m2", "weight")
        )

    def _moments_of_kept_row(self, register: torch.dtype, value: Value) -> tuple[CSEVariable, ...]:
        """Mean first, then the squared distances from it: exact, and no division for every element."""
        scalar = compute_type(register)
        length = f"{scalar}({self._reduction_tree().numel})"  # type: ignore[attr-defined]
        total = self._combined(f"Sum<{scalar}>", f"{scalar}({value})", scalar)
        mean = self._result(f"{total} / {length}", register)
        self.codegen_body()  # type: ignore[attr-defined]
        distance = self.cse.generate(self.compute, f"{scalar}({value}) + (-{mean})", dtype=register)
        squares = self._combined(f"Sum<{scalar}>", f"{distance} * {distance}", scalar)
        return mean, self._result(squares, register), self._result(length, register)

    def _online_softmax(self, value: Value) -> tuple[CSEVariable, ...]:
        """The largest value of the row, and the sum of the exponentials of the others' distances from it."""
        self.require("torchvk_softmax")  # type: ignore[attr-defined]
        if self.layout.lanes == 1 or self.layout.persistent:
            state = self._combined("OnlineSoftmax", f"{{ {value}, 1.0f }}", "Exponentials")
        else:
            state = self._combined_vectors("OnlineSoftmax", "withFourMore", value, "Exponentials")
        return (
            self._result(f"{state}.largest", torch.float32),
            self._result(f"{state}.sum()", torch.float32),
        )

    def _arg(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Value
    ) -> CSEVariable:
        if isinstance(value, tuple):
            value, index = value
        else:
            index = self._reduction_tree().name  # type: ignore[attr-defined]
        scalar = compute_type(_accumulator(src_dtype))
        fresh = f"{{ {scalar}({value}), int64_t({index}) }}"
        state = self._combined(
            f"{_REDUCERS[reduction_type]}<{scalar}>", fresh, f"Indexed<{scalar}>"
        )
        return self._result(f"{compute_type(dtype)}({state}.index)", dtype)

    def _combined(self, reducer: str, fresh: str, state_type: str) -> str:
        """Name of the combined state of `fresh` over all iterations of the row."""
        self.require("torchvk_reduce")  # type: ignore[attr-defined]
        name = f"acc{next(self._accumulators)}"
        layout = self.layout
        if layout.persistent:
            if self._columns_may_overhang():  # type: ignore[attr-defined]
                self.compute.writeline(f"{state_type} {name} = {reducer}.identity();")
                self.compute.writeline(f"if (column_exists) {name} = {fresh};")
            else:
                self.compute.writeline(f"{state_type} {name} = {fresh};")
        else:
            guard = "if (column_exists) " if self.guards_columns() else ""  # type: ignore[attr-defined]
            self.prefix.writeline(f"{state_type} {name} = {reducer}.identity();")
            self.compute.writeline(f"{guard}{name} = {reducer}.combine({name}, {fresh});")
        self._share(name, reducer)
        return name

    def _combined_vectors(
        self, reducer: str, accumulate: str, value: Value, state_type: str
    ) -> str:
        """The same where `accumulate` takes the values of all lanes at once, -infinity for those that are missing."""
        self.require("torchvk_reduce")  # type: ignore[attr-defined]
        self.require("torchvk_float")  # type: ignore[attr-defined]
        name = f"acc{next(self._accumulators)}"
        lanes = self.layout.lanes
        vector = f"vector<float, {lanes}>"
        self.prefix.writeline(f"{state_type} {name} = {reducer}.identity();")
        self.vector_loads.writeline(f"{vector} {name}_values = {vector}(-INFINITE);")
        self.compute.writeline(f"{name}_values[lane] = {value};")
        self.vector_stores.writeline(f"{name} = {accumulate}({name}, {name}_values);")
        self._share(name, reducer)
        return name

    def _share(self, name: str, reducer: str) -> None:
        """Combine the states of a row's invocations."""
        layout = self.layout
        if layout.columns == 1:
            return
        shape = f"{layout.rows}, {layout.columns}"
        if layout.inner:
            call = f"reduceRow<{reducer}, {shape}, {layout.subgroup}>"
        else:
            call = f"reduceColumn<{reducer}, {shape}>"
        self._result_code().writeline(f"{name} = {call}({name}, row, column);")

    def _result(self, expression: str, dtype: torch.dtype) -> CSEVariable:
        result = self.cse.newvar(dtype=dtype)
        # Not const: a check of bounds may set an index to 0.
        self._result_code().writeline(f"{compute_type(dtype)} {result} = {expression};")
        return result

    def _result_code(self) -> IndentedBuffer:
        return self.compute if self.layout.persistent else self.after_loop

    @property
    def _accumulators(self) -> itertools.count[int]:
        if not hasattr(self, "_accumulator_ids"):
            self._accumulator_ids = itertools.count()
        return self._accumulator_ids


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """What is accumulated in: float32 for half precision, int32 for bool (which has no order in Slang)."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return torch.int32 if dtype is torch.bool else dtype
