"""The little of SPIR-V's binary format that TorchVK reads and rewrites itself.

In: a SPIR-V binary. Out: its entry points, or a copy with marks added or removed.
Forbidden: changing an instruction inside a function.

Layout (SPIR-V specification, section 2.3): five header words, then instructions whose first word
holds the length in words (high half) and the opcode (low half).
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator

_MAGIC = 0x07230203
_HEADER_WORDS = 5
_OP_SOURCE = 3
_OP_ENTRY_POINT = 15
_OP_EXECUTION_MODE = 16
_OP_CAPABILITY = 17
_OP_TYPE_FLOAT = 22
_OP_FUNCTION = 54
_SIGNED_ZERO_INF_NAN_PRESERVE = 4461  # execution mode
_SIGNED_ZERO_INF_NAN_PRESERVE_CAPABILITY = 4466


def without_source_language(binary: bytes) -> bytes:
    """Drop every ``OpSource``: SPIRV-Tools older than 2023 reject the number assigned to Slang."""
    words = _words(binary)
    kept = words[:_HEADER_WORDS]
    for start, length, opcode in _instructions(words):
        if opcode != _OP_SOURCE:
            kept.extend(words[start : start + length])
    return kept.tobytes()


def with_nan_preserved(binary: bytes, widths: Collection[int]) -> bytes:
    """Ask the driver to keep signed zeros, infinities and NaNs (``SignedZeroInfNanPreserve``).

    Without it a driver may rewrite ``x * 0`` to ``0`` (Mesa does), which torch does not. Core since
    SPIR-V 1.4; a device tells the widths it can do this for.

    Args:
        binary: the module.
        widths: float widths in bits for which the device has the property; those the module does
            not use are left out.
    """
    words = _words(binary)
    instructions = list(_instructions(words))
    used = {words[at + 2] for at, _, opcode in instructions if opcode == _OP_TYPE_FLOAT}
    wanted = sorted(used & set(widths))
    if not wanted:
        return binary
    entries = [words[at + 2] for at, _, opcode in instructions if opcode == _OP_ENTRY_POINT]
    last_entry = max(at for at, _, opcode in instructions if opcode == _OP_ENTRY_POINT)
    result = words[:_HEADER_WORDS]
    result.extend([2 << 16 | _OP_CAPABILITY, _SIGNED_ZERO_INF_NAN_PRESERVE_CAPABILITY])
    for start, length, _ in instructions:
        result.extend(words[start : start + length])
        if start == last_entry:
            for entry in entries:
                for width in wanted:
                    mode = _SIGNED_ZERO_INF_NAN_PRESERVE
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
