"""How each torch dtype is stored, computed with, written as a literal and converted in Slang.

In: torch dtypes, Python numbers, Slang expressions. Out: Slang type names and expressions.
Forbidden: knowing kernels, buffers or Inductor's IR; importing Inductor.
"""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np
import torch

from torchvk_compile.errors import UnsupportedOperatorError

MEMORY_MODULE = "torchvk_memory"
CAST_MODULE = "torchvk_cast"

# As laid in memory. Half and bfloat16 are kept as bits: rounding to them is done by hand (drivers
# disagree about it), and 16-bit integers need only 16-bit storage, not float16 arithmetic.
STORAGE_TYPES: dict[torch.dtype, str] = {
    torch.bool: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int",
    torch.int64: "int64_t",
    torch.uint8: "uint8_t",
    torch.uint16: "uint16_t",
    torch.uint32: "uint",
    torch.uint64: "uint64_t",
    torch.float16: "uint16_t",
    torch.bfloat16: "uint16_t",
    torch.float32: "float",
    torch.float64: "double",
}

COMPUTE_TYPES: dict[torch.dtype, str] = {
    **STORAGE_TYPES,
    torch.bool: "bool",
    torch.float16: "float",
    torch.bfloat16: "float",
}

LOW_PRECISION = (torch.float16, torch.bfloat16)
_INTEGER_BITS = {
    torch.int8: 8,
    torch.int16: 16,
    torch.int32: 32,
    torch.int64: 64,
    torch.uint8: 8,
    torch.uint16: 16,
    torch.uint32: 32,
    torch.uint64: 64,
}
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


class DtypeFeatures(Protocol):
    """The part of a DeviceProfile that decides which dtypes a device computes with."""

    float64: bool
    int64: bool
    int16: bool
    int8: bool
    storage16: bool
    storage8: bool


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype whose Slang compute type stands for ``dtype``: float32 for half and bfloat16."""
    return torch.float32 if dtype in LOW_PRECISION else dtype


def storage_type(dtype: torch.dtype) -> str:
    """The Slang type of an element of ``dtype`` in memory."""
    return STORAGE_TYPES[dtype]


def compute_type(dtype: torch.dtype) -> str:
    """The Slang type that values of ``dtype`` are computed in."""
    return COMPUTE_TYPES[dtype]


def is_integer(dtype: torch.dtype) -> bool:
    """True for the signed and unsigned integers, not for bool."""
    return dtype in _INTEGER_BITS


def is_unsigned(dtype: torch.dtype) -> bool:
    """True for uint8, uint16, uint32 and uint64."""
    return dtype in _UNSIGNED


def integer_bits(dtype: torch.dtype) -> int:
    """Width of an integer dtype in bits."""
    return _INTEGER_BITS[dtype]


def require_supported(dtype: torch.dtype, features: DtypeFeatures | None, op: str) -> None:
    """Raise UnsupportedOperatorError, naming ``op``, where the device lacks ``dtype``.

    ``features`` is a DeviceProfile; None accepts everything that Slang can express.
    """
    if dtype not in STORAGE_TYPES:
        raise UnsupportedOperatorError(op, dtype=dtype, reason="this dtype has no Slang type")
    if features is None:
        return
    needs: dict[str, bool] = {}
    if dtype == torch.float64:
        needs["shaderFloat64"] = features.float64
    elif dtype in (torch.int64, torch.uint64):
        needs["shaderInt64"] = features.int64
    elif dtype in (*LOW_PRECISION, torch.int16, torch.uint16):
        needs["16-bit storage"] = features.storage16
        needs["shaderInt16"] = features.int16
    elif dtype in (torch.bool, torch.int8, torch.uint8):
        needs["8-bit storage"] = features.storage8
        needs["shaderInt8"] = features.int8
    missing = [name for name, present in needs.items() if not present]
    if missing:
        reason = f"the device lacks {' and '.join(missing)}"
        raise UnsupportedOperatorError(op, dtype=dtype, reason=reason)


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """``value`` as a Slang literal of ``dtype``'s compute type, exact to the last bit.

    Integers wrap into the dtype like torch's casts; floats round to the compute dtype.
    """
    dtype = compute_dtype(dtype)
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype in _INTEGER_BITS:
        return _integer_literal(int(value), dtype)
    if dtype == torch.float64:
        return _double_literal(float(value))
    return _float_literal(float(value))


def to_compute(dtype: torch.dtype, stored: str) -> str:
    """Turn an expression of ``dtype``'s storage type into its compute type."""
    if dtype == torch.bool:
        return f"({stored} != uint8_t(0))"
    if dtype == torch.float16:
        return f"halfToFloat({stored})"
    if dtype == torch.bfloat16:
        return f"bfloatToFloat({stored})"
    return stored


def to_storage(dtype: torch.dtype, value: str) -> str:
    """Turn an expression of ``dtype``'s compute type into its storage type (nearest even)."""
    if dtype == torch.bool:
        return f"select({value}, uint8_t(1), uint8_t(0))"
    if dtype == torch.float16:
        return f"floatToHalf({value})"
    if dtype == torch.bfloat16:
        return f"floatToBfloat({value})"
    return value


def conversion(value: str, source: torch.dtype, target: torch.dtype) -> tuple[str, str | None]:
    """``value`` of ``source``'s compute type as ``target``'s compute type, with torch's rounding.

    Returns the expression and the library module it needs (None: none). Floats become integers by
    truncation; NaN, infinities and values outside int32 (int64 for int64, uint8, uint32 and
    uint64) give what x86's conversion instructions give, the smallest integer, then wrap to the
    target's width. A float becomes half or bfloat16 by rounding to the nearest value, ties to even.
    """
    if target in LOW_PRECISION and source != target:
        text, _ = conversion(value, source, torch.float32)
        rounding = "roundToHalf" if target == torch.float16 else "roundToBfloat"
        return f"{rounding}({text})", MEMORY_MODULE
    source, target = compute_dtype(source), compute_dtype(target)
    if source == target:
        return value, None
    slang_type = COMPUTE_TYPES[target]
    if target == torch.bool:
        if source.is_floating_point:
            return f"floatToBool({value})", CAST_MODULE
        return f"({value} != {literal(0, source)})", None
    if source == torch.bool:
        return f"select({value}, {literal(1, target)}, {literal(0, target)})", None
    if source.is_floating_point and is_integer(target):
        return f"floatTo{_cast_name(target)}({value})", CAST_MODULE
    return f"{slang_type}({value})", None


def bit_conversion(value: str, source: torch.dtype, target: torch.dtype) -> tuple[str, str | None]:
    """Reinterpret the stored bits of ``value`` (of dtype ``source``) as dtype ``target``.

    Both dtypes have the same size; ``value`` and the result have their compute types. Returns the
    expression and the library module it needs (None: none).
    """
    if source.itemsize != target.itemsize:
        raise ValueError(f"cannot view {source} as {target}: the element sizes differ")
    stored = to_storage(source, value)
    source_type, target_type = STORAGE_TYPES[source], STORAGE_TYPES[target]
    if source_type == target_type:
        bits = stored
    elif torch.float32 in (source, target) or torch.float64 in (source, target):
        bits = f"bit_cast<{target_type}>({stored})"
    else:
        bits = f"{target_type}({stored})"
    needs_memory = source in LOW_PRECISION or target in LOW_PRECISION
    return to_compute(target, bits), MEMORY_MODULE if needs_memory else None


def _cast_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").capitalize()


def _integer_literal(value: int, dtype: torch.dtype) -> str:
    bits = _INTEGER_BITS[dtype]
    value &= (1 << bits) - 1
    if dtype not in _UNSIGNED and value >> (bits - 1):
        value -= 1 << bits
    if dtype == torch.int64:
        # The lexer reads the sign apart from the digits, so the smallest value has no literal.
        return f"int64_t(0x{1 << 63:x}ULL)" if value == -(1 << 63) else f"{value}LL"
    if dtype == torch.int32:
        return "int(0x80000000u)" if value == -(1 << 31) else str(value)
    if dtype == torch.uint64:
        return f"{value}ULL"
    if dtype == torch.uint32:
        return f"{value}u"
    return f"{COMPUTE_TYPES[dtype]}({value})"


def _float_literal(value: float) -> str:
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        bits = 0xFF800000 if value < 0 else 0x7F800000
    exponent = bits >> 23 & 0xFF
    if exponent == 0xFF or (exponent == 0 and bits & 0x7FFFFF):
        # Infinities, NaN and subnormal numbers have no decimal form that every compiler keeps.
        return f"asfloat(0x{bits:08x}u)"
    # The shortest decimal number that reads back as the same float32.
    return f"{np.float32(value)!s}f"


def _double_literal(value: float) -> str:
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    exponent = bits >> 52 & 0x7FF
    if exponent == 0x7FF or (exponent == 0 and bits & (1 << 52) - 1):
        return f"bit_cast<double>(0x{bits:016x}ULL)"
    return f"{value!r}lf"
