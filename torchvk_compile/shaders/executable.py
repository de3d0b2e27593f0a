"""The Slang compiler as a separate process: the way when its library cannot be loaded.

In: one module's source and options. Out: SPIR-V or a precompiled module, or the diagnostics.
Forbidden: the disk cache, config, leaving files behind.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchvk_compile.errors import ShaderCompileError
from torchvk_compile.shaders.library import SlangFailure

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class SlangExecutable:
    """A ``slangc``, with the same methods as `SlangLibrary`. Every call starts a process."""

    path: Path

    @property
    def version(self) -> str:
        """The release, as in ``2026.14.1``. Raises ShaderCompileError if it does not run."""
        try:
            done = subprocess.run(
                [str(self.path), "-v"], capture_output=True, text=True, timeout=60, check=False
            )
            done.check_returncode()
        except (OSError, subprocess.SubprocessError) as error:
            raise ShaderCompileError(f"{self.path} could not be run: {error}") from error
        return f"{done.stdout}{done.stderr}".strip()

    def compile(self, source: str, options: Sequence[str], name: str) -> bytes:
        """Compile one module with all its entry points to SPIR-V. Raises SlangFailure."""
        with tempfile.TemporaryDirectory(prefix="torchvk-slang-") as directory:
            source_path = Path(directory, f"{name}.slang")
            source_path.write_text(source, encoding="utf-8")
            return self._run(source_path, options, Path(directory, f"{name}.spv"))

    def precompile(self, path: Path, options: Sequence[str]) -> bytes:
        """Compile a module that others import to Slang's own binary form. Raises SlangFailure."""
        with tempfile.TemporaryDirectory(prefix="torchvk-slang-") as directory:
            return self._run(path, options, Path(directory, f"{path.stem}.slang-module"))

    def _run(self, source: Path, options: Sequence[str], target: Path) -> bytes:
        command = [str(self.path), str(source), *options, "-o", str(target)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlangFailure(f"{self.path} could not be run: {error}") from error
        diagnostics = f"{done.stdout}{done.stderr}".replace(f"{target.parent}/", "")
        if done.returncode != 0 or not target.is_file():
            reason = diagnostics.strip() or f"{self.path} exited with status {done.returncode}"
            raise SlangFailure(reason)
        return target.read_bytes()
