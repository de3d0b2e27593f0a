"""Where the steps of a plan come from: operators of the FX graph, and lines of the user's program.

In: names, texts and stack frames as plain data. Out: frozen dataclasses that a plan carries and serialises.
Forbidden: FX and Inductor objects; reading files other than to see where a line is today.
"""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Iterable
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Frame:
    """A line of a Python program.

    Attributes:
        file: path, or a name in angle brackets for code without a file.
        line: number, from 1, when the graph was compiled.
        function: name of the function it stands in.
        code: text of the line, without its indentation; empty if it could not be read.
    """

    file: str
    line: int
    function: str
    code: str

    def current_line(self) -> int:
        """Number of the line in the file as it is now.

        Compiled graphs are kept on disk and found again after lines were added above the model; the same
        text nearest to the old place is then meant. Where the text is gone, the old number stays.
        """
        lines = source_lines(self.file)
        if not self.code or self._is_at(lines, self.line):
            return self.line
        found = [n for n in range(1, len(lines) + 1) if self._is_at(lines, n)]
        return min(found, key=lambda n: abs(n - self.line), default=self.line)

    def _is_at(self, lines: list[str], number: int) -> bool:
        return 1 <= number <= len(lines) and lines[number - 1].strip() == self.code

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.current_line()}"


@dataclasses.dataclass(frozen=True)
class Origin:
    """An operator of the FX graph that Inductor compiled.

    Attributes:
        node: its name in the graph, such as ``addmm_1``.
        op: the operator, such as ``aten.addmm.default``.
        composite: the operator the user's program called if `op` is a part of its decomposition, else empty.
        module: path of the ``nn.Module`` that called it, such as ``blocks.0.up``; empty outside modules.
        value: its result, such as ``f32[8, 64]``.
        inputs: names of the nodes it takes.
        frames: where the user's program calls it, innermost first, without the frames inside torch. Empty for
            operators that no line asks for, such as those of eager calls.
    """

    node: str
    op: str
    composite: str = ""
    module: str = ""
    value: str = ""
    inputs: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()


def source_lines(file: str) -> list[str]:
    """The lines of a Python source, also of notebook cells; none if it cannot be read."""
    linecache.checkcache(file)
    return linecache.getlines(file)


def origins_to_data(origins: Iterable[Origin]) -> dict[str, Any]:
    """Plain data in which each frame and each stack occurs once: ``frames``, ``stacks`` and ``origins``."""
    frames: dict[Frame, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    written = []
    for origin in origins:
        stack = tuple(frames.setdefault(frame, len(frames)) for frame in origin.frames)
        fields = {f.name: getattr(origin, f.name) for f in dataclasses.fields(origin)}
        written.append(fields | {"frames": stacks.setdefault(stack, len(stacks))})
    return {
        "frames": [dataclasses.asdict(frame) for frame in frames],
        "stacks": [list(stack) for stack in stacks],
        "origins": written,
    }


def origins_from_data(data: dict[str, Any]) -> tuple[Origin, ...]:
    """What `origins_to_data` was given."""
    frames = [Frame(**frame) for frame in data["frames"]]
    stacks = [tuple(frames[i] for i in stack) for stack in data["stacks"]]
    return tuple(
        Origin(**origin | {"inputs": tuple(origin["inputs"]), "frames": stacks[origin["frames"]]})
        for origin in data["origins"]
    )


def _short(file: str) -> str:
    """The path from the working directory, if the file lies below it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
