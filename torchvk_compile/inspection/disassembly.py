"""The parts of a module that belong to one kernel, as text: Slang source, SPIR-V, machine code.

In: a module's source and binary. Out: texts. Forbidden: failing where a tool is missing: the text says so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

_NO_DISASSEMBLER = "spirv-dis is not installed (Debian: spirv-tools)."
_ENTRY_POINT = re.compile(r'^ *OpEntryPoint GLCompute (?P<function>%\w+) "(?P<name>\w+)".*$')


def slang_of_kernels(module: str, names: Sequence[str]) -> dict[str, str]:
    """The source of each kernel: from the end of the one before to its own closing brace."""
    lines = module.splitlines()
    start = next((i + 1 for i, line in enumerate(lines) if " ALIGNED = " in line), 0)
    found = {}
    for name in sorted(names, key=lambda name: _position(lines, name)):
        end = lines.index("}", _position(lines, name)) + 1
        found[name] = "\n".join(lines[start:end]).strip("\n")
        start = end
    return found


def _position(lines: Sequence[str], name: str) -> int:
    head = f"void {name}("
    return next(i for i, line in enumerate(lines) if line.startswith(head))


def spirv_of_kernels(binary: bytes, names: Sequence[str]) -> dict[str, str]:
    """The disassembled entry point of each kernel, without the functions it calls."""
    tool = shutil.which("spirv-dis")
    if tool is None:
        return dict.fromkeys(names, _NO_DISASSEMBLER)
    done = subprocess.run([tool, "--no-color", "-"], input=binary, capture_output=True)
    if done.returncode != 0:
        return dict.fromkeys(names, done.stderr.decode(errors="replace").strip())
    lines = done.stdout.decode().splitlines()
    functions = {
        match["name"]: (match["function"], line.strip())
        for line in lines
        if (match := _ENTRY_POINT.match(line)) is not None
    }
    return {name: _entry_point(lines, *functions[name], name) for name in names}


def _entry_point(lines: Sequence[str], function: str, declaration: str, name: str) -> str:
    modes = [line.strip() for line in lines if f"OpExecutionMode {function} " in line]
    begin = next(i for i, line in enumerate(lines) if f"{function} = OpFunction " in line)
    end = next(i for i in range(begin, len(lines)) if lines[i].strip() == "OpFunctionEnd")
    body = [re.sub(r"^ {1,15}", "", line) for line in lines[begin : end + 1]]
    return "\n".join([declaration, *modes, "", *body])


def machine_code(representations: dict[str, str]) -> str:
    """The machine code among a driver's texts about a pipeline, if it shows any."""
    for name, text in representations.items():
        if name.lower() in ("assembly", "isa", "disassembly"):
            return text.replace("\t", "    ").rstrip()
    return ""
