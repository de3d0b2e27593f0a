"""Results that live across a barrier: the value in registers and the one in shared memory agree.

LLVM 15 (lavapipe with AVX-512) once folded the sign and the NaN choice of a result into a wrong
operation, but only for values used again after a barrier.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shader_functions import evaluate, update

from torchvk_compile.codegen.overrides_library import BINARY, UNARY, library_call

WORKGROUP = 64
COUNT = 8 * WORKGROUP
PRIVATE = {"sqrt": 1, "rsqrt": 1, "relu": 1, "pow": 2, "divide": 2, "truncMod": 2, "floorMod": 2}
FUNCTIONS = {
    **dict.fromkeys(UNARY.values(), 1),
    **{name: 2 for name in BINARY.values() if "polynomial" not in name},
    **PRIVATE,
}
DOUBLE = ["tanh", "atan", "asinh", "i1", "copysign", "atan2", "sinh", "erf"]
CASES = [(name, np.float32) for name in FUNCTIONS] + [(name, np.float64) for name in DOUBLE]
NEIGHBOUR = (
    "let value = {call}; exchanged[thread.x & 63u] = value; GroupMemoryBarrierWithGroupSync(); "
    "arguments.out[i] = value + exchanged[(thread.x + 1u) & 63u]"
)


@pytest.mark.parametrize(("function", "dtype"), CASES)
def test_a_value_is_the_same_after_a_barrier(function: str, dtype: type) -> None:
    generator = np.random.default_rng(0)
    low = 0.1 if FUNCTIONS[function] == 2 else -3.0
    operands = [generator.uniform(low, 3, COUNT).astype(dtype) for _ in range(FUNCTIONS[function])]
    torch_dtype = torch.float32 if dtype is np.float32 else torch.float64
    call, module = library_call(function, ["a", "b"][: len(operands)], torch_dtype)
    values = evaluate(call, *operands, result=dtype, modules=[module])
    rows = values.reshape(-1, WORKGROUP)
    expected = (rows + np.roll(rows, -1, axis=1)).ravel()
    target = np.zeros(COUNT, dtype)
    actual = update(NEIGHBOUR.format(call=call), target, *operands, modules=[module])
    np.testing.assert_array_equal(actual, expected)
