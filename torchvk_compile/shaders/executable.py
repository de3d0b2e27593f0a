"""The Slang compiler as a separate process: the way when its library cannot be loaded.

In: one module's source and options. Out: SPIR-V, or the diagnostics.
Forbidden: the disk cache, config, leaving files behind.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torchvk_compile.shaders.library import SlangFailure

_TIMEOUT_SECONDS = 600


def compile_with_executable(
    executable: Path, source: str, options: Sequence[str], name: str
) -> bytes:
    """Compile one module with all its entry points. Raises SlangFailure."""
    with tempfile.TemporaryDirectory(prefix="torchvk-slang-") as directory:
        source_path = Path(directory, f"{name}.slang")
        target_path = Path(directory, f"{name}.spv")
        source_path.write_text(source, encoding="utf-8")
        command = [str(executable), str(source_path), *options, "-o", str(target_path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlangFailure(f"{executable} could not be run: {error}") from error
        diagnostics = f"{done.stdout}{done.stderr}".replace(f"{directory}/", "")
        if done.returncode != 0 or not target_path.is_file():
            reason = diagnostics.strip() or f"{executable} exited with status {done.returncode}"
            raise SlangFailure(reason)
        return target_path.read_bytes()
