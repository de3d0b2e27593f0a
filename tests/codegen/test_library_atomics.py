"""Atomic updates of every dtype, with many invocations on few elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from shader_functions import update

from torchvk_compile.device import profile

MODULES = ["torchvk_atomics"]
COUNT, ELEMENTS = 5000, 37
DTYPES = ["float32", "float64", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64))]
OPERATIONS = {"Plus": np.add, "Larger": np.maximum, "Smaller": np.minimum}


def indices() -> np.ndarray:
    return np.random.default_rng(0).integers(0, ELEMENTS, COUNT).astype(np.int32)


def values(high: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, high, COUNT)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_of_every_dtype(dtype: str, operation: str) -> None:
    # Small values, so that sums of 8-bit integers wrap and sums of floats are exact.
    operands, index = values(5).astype(dtype), indices()
    target = np.full(ELEMENTS, 3, dtype)
    expected = target.copy()
    OPERATIONS[operation].at(expected, index, operands)
    statement = f"atomicUpdate<{operation}>(arguments.out, b, a)"
    actual = update(statement, target, operands, index, modules=MODULES)
    assert actual.tolist() == expected.tolist()
    if operation == "Plus":
        statement = "atomicAdd(arguments.out, b, a)"
        actual = update(statement, target, operands, index, modules=MODULES)
        assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize(("name", "dtype"), [("Half", torch.float16), ("Bfloat16", torch.bfloat16)])
def test_sums_of_16_bit_floats(name: str, dtype: torch.dtype) -> None:
    # At most 256, so that every partial sum is exact in bfloat16.
    operands, index = (values(200) == 0).astype(np.float32), indices()
    expected = np.zeros(ELEMENTS, np.float32)
    np.add.at(expected, index, operands)
    bits = np.zeros(ELEMENTS, np.uint16)
    statement = f"atomicAdd{name}(arguments.out, b, a)"
    actual = update(statement, bits, operands, index, modules=MODULES)
    sums = torch.from_numpy(actual.view(np.int16)).view(dtype).float().numpy()
    assert sums.tolist() == expected.tolist()


def test_bool_is_or() -> None:
    operands, index = (values(1000) == 0).astype(np.uint8), indices()
    expected = np.zeros(ELEMENTS, np.uint8)
    np.maximum.at(expected, index, operands)
    statement = "atomicAddBool(arguments.out, b, a != uint8_t(0))"
    actual = update(statement, np.zeros(ELEMENTS, np.uint8), operands, index, modules=MODULES)
    assert actual.tolist() == expected.tolist()


def test_nan_wins_over_numbers() -> None:
    operands, index = values(50).astype(np.float32), indices()
    operands[100] = np.nan
    statement = "atomicUpdate<Larger>(arguments.out, b, a)"
    target = np.zeros(ELEMENTS, np.float32)
    actual = update(statement, target, operands, index, modules=MODULES)
    assert np.isnan(actual).nonzero()[0].tolist() == [index[100]]


def test_hardware_float_addition() -> None:
    if not profile(0).float_atomic_add:
        pytest.skip("the device has no float atomics")
    operands, index = values(5).astype(np.float32), indices()
    expected = np.zeros(ELEMENTS, np.float32)
    np.add.at(expected, index, operands)
    statement = "atomicAddHardware(arguments.out, b, a)"
    target = np.zeros(ELEMENTS, np.float32)
    actual = update(statement, target, operands, index, modules=MODULES)
    assert actual.tolist() == expected.tolist()
