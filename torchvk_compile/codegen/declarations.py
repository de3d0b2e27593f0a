"""Declarations among the lines of a loop, and which of them are the same in all its iterations.

In: lines of Slang as kernels write them, one declaration a line. Out: what a line declares, lines to move before the
loop. Forbidden: knowing loops.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

_DECLARATION = re.compile(r"(?:const )?(\S+) (\w+) = (.*);")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"\s+(tmp\w+) = ")
_CALL = re.compile(r"\b(?!(?:u?int(?:\d+_t)?|float|double|bool)\()[A-Za-z_]\w*(?:<\w+>)?\(")
_READS = ("load(", "loadMasked(", "loadVector<")


@dataclasses.dataclass(frozen=True)
class Declaration:
    """A variable that a loop declares.

    Attributes:
        kind: its type.
        name: of the variable.
        expression: what it is set to.
        line: all of it.
        changed: whether a later line sets it again.
    """

    kind: str
    name: str
    expression: str
    line: str
    changed: bool = False

    @staticmethod
    def parse(line: str, changed: Iterable[str] = ()) -> Declaration | None:
        """What the line declares, if it is a declaration; `changed` names variables that are set again."""
        found = _DECLARATION.fullmatch(line)
        if found is None:
            return None
        return Declaration(found[1], found[2], found[3], line, found[2] in changed)

    @property
    def names(self) -> list[str]:
        """Identifiers it depends on."""
        return names_in([self.expression])

    @property
    def reads(self) -> bool:
        """It comes from memory."""
        return any(read in self.expression for read in _READS)

    @property
    def is_cheap(self) -> bool:
        """An instruction or two."""
        return not (self.changed or self.reads or _CALL.search(self.expression))


def separate(
    lines: Sequence[str], differing: set[str]
) -> tuple[list[str], list[str], dict[str, Declaration]]:
    """Tell what is the same in all iterations.

    Args:
        lines: of the loop's body.
        differing: names of what differs between iterations; the loop's own are added.

    Returns:
        Lines to move before the loop, lines that stay, and what the latter declare.
    """
    changed = {found[1] for line in lines if (found := _ASSIGNMENT.match(line))}
    same: list[str] = []
    rest: list[str] = []
    declared: dict[str, Declaration] = {}
    for line in lines:
        value = Declaration.parse(line, changed)
        if value is None:
            rest.append(line)
        elif value.changed or value.reads or differing.intersection(value.names):
            rest.append(line)
            differing.add(value.name)
            declared[value.name] = value
        else:
            same.append(line)
    return same, rest, declared


def names_in(lines: Iterable[str]) -> list[str]:
    """Identifiers in order of their first appearance."""
    return list(dict.fromkeys(name for line in lines for name in _NAME.findall(line)))
