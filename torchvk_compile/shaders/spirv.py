"""The little of SPIR-V's binary format that TorchVK reads and rewrites itself.

In: a SPIR-V binary. Out: its entry points, or a copy with marks added or removed.
Forbidden: changing an instruction inside a function.

Layout (SPIR-V specification, section 2.3): five header words, then instructions whose first word
holds the length in words (high half) and the opcode (low half).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MAGIC = 0x07230203
_HEADER_WORDS = 5
_OP_SOURCE = 3
_OP_ENTRY_POINT = 15
_OP_EXECUTION_MODE = 16
_OP_CAPABILITY = 17
_OP_TYPE_FLOAT = 22
_IEEE_TYPE_FLOAT_WORDS = 3
_OP_FUNCTION = 54
_DENORM_PRESERVE = 4459
_SIGNED_ZERO_INF_NAN_PRESERVE = 4461
_CAPABILITIES = {_DENORM_PRESERVE: 4464, _SIGNED_ZERO_INF_NAN_PRESERVE: 4466}
"""The capability that each execution mode asks for."""


@dataclass(frozen=True)
class FloatControls:
    """What a device's compiler can be asked to keep, each for some float widths (in bits).

    Attributes:
        nan_preserve: signed zeros, infinities and NaNs. Without it a driver may rewrite ``x * 0`` to ``0`` (Mesa
            does), which torch does not.
        denorm_preserve: subnormal numbers. Without it a GPU may take them for zero (NVIDIA's do).
    """

    nan_preserve: tuple[int, ...] = ()
    denorm_preserve: tuple[int, ...] = ()

    @staticmethod
    def of(profile: Any) -> FloatControls:
        """All that the device of a `DeviceProfile` offers."""
        return FloatControls(tuple(profile.nan_preserve), tuple(profile.denorm_preserve))

    def modes(self) -> Iterator[tuple[int, int]]:
        """Execution modes of SPIR-V 1.4 (``SPV_KHR_float_controls``), each with a width."""
        for width in self.nan_preserve:
            yield _SIGNED_ZERO_INF_NAN_PRESERVE, width
        for width in self.denorm_preserve:
            yield _DENORM_PRESERVE, width


def without_source_language(binary: bytes) -> bytes:
    """Drop every ``OpSource``: SPIRV-Tools older than 2023 reject the number assigned to Slang."""
    words = _words(binary)
    kept = words[:_HEADER_WORDS]
    for start, length, opcode in _instructions(words):
        if opcode != _OP_SOURCE:
            kept.extend(words[start : start + length])
    return kept.tobytes()


def with_float_controls(binary: bytes, controls: FloatControls) -> bytes:
    """The module with `controls` asked for in every kernel, for the float widths it uses."""
    words = _words(binary)
    instructions = list(_instructions(words))
    # The modes are about IEEE's formats; other types of a width name theirs in one more operand.
    used = {
        words[at + 2]
        for at, length, opcode in instructions
        if opcode == _OP_TYPE_FLOAT and length == _IEEE_TYPE_FLOAT_WORDS
    }
    wanted = [(mode, width) for mode, width in controls.modes() if width in used]
    entries = [words[at + 2] for at, _, opcode in instructions if opcode == _OP_ENTRY_POINT]
    last_entry = max((at for at, _, opcode in instructions if opcode == _OP_ENTRY_POINT), default=0)
    result = words[:_HEADER_WORDS]
    for mode in dict.fromkeys(mode for mode, _ in wanted):
        result.extend([2 << 16 | _OP_CAPABILITY, _CAPABILITIES[mode]])
    for start, length, _ in instructions:
        result.extend(words[start : start + length])
        if start == last_entry:
            for entry in entries:
                for mode, width in wanted:
                    result.extend([4 << 16 | _OP_EXECUTION_MODE, entry, mode, width])
    return result.tobytes()


def entry_points(binary: bytes) -> list[str]:
    """The names of the module's entry points, in the module's order."""
    words = _words(binary)
    names = []
    for start, length, opcode in _instructions(words):
        if opcode == _OP_ENTRY_POINT:
            text = words[start + 3 : start + length].tobytes()
            names.append(text[: text.index(0)].decode())
        elif opcode == _OP_FUNCTION:
            break
    return names


def _words(binary: bytes) -> array[int]:
    """The binary as 32-bit words. ValueError if it is not a little-endian SPIR-V module."""
    if len(binary) % 4 or len(binary) < 4 * _HEADER_WORDS:
        raise ValueError("not a SPIR-V module: wrong size")
    words = array("I", binary)
    if words[0] != _MAGIC:
        raise ValueError("not a SPIR-V module: wrong magic number")
    return words


def _instructions(words: array[int]) -> Iterator[tuple[int, int, int]]:
    """(first word, length in words, opcode) of each instruction."""
    position = _HEADER_WORDS
    while position < len(words):
        length, opcode = words[position] >> 16, words[position] & 0xFFFF
        if length == 0 or position + length > len(words):
            raise ValueError(f"not a SPIR-V module: bad instruction at word {position}")
        yield position, length, opcode
        position += length
