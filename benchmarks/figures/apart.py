"""A party in a process of its own, without TorchVK.

In: the sizes of the cases. Out: the methods of `Party`. Forbidden: tensors in messages; results travel in a file.

torch has one accelerator a process. Where TorchVK is loaded it is vk, and the backward pass of CUDA tensors fails an
assertion of torch's, so CUDA's contestants live here. So does torchvulkan, in its own environment.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from figures.case import Case

_ROOT = Path(__file__).parents[1]
_SETTINGS = {
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # TorchVK would take the device type that torchvulkan needs
    "TORCHVULKAN_STRICT": "1",  # an operator that it leaves to the CPU fails
}


class PartyApart:
    """Peers of TorchVK in a child process.

    Args:
        full: whether the cases have the sizes for GPUs; both processes number the same list.
        who: the function of `sides` that names the contestants.
        python: the interpreter that has them.
    """

    def __init__(
        self, full: bool, who: str = "peers", python: str | os.PathLike[str] = sys.executable
    ) -> None:
        self._child = subprocess.Popen(
            [python, "-c", f"from figures.apart import serve; serve({full}, {who!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=os.environ | _SETTINGS,
        )

    def close(self) -> None:
        """End the child process."""
        self._child.communicate()

    def names(self, case: Case) -> list[str]:
        """See `Party`."""
        return self._ask("names", case.group, case.name)

    def start(self, case: Case) -> None:
        """See `Party`."""
        self._ask("start", case.group, case.name)

    def enter(self, name: str) -> float:
        """See `Party`."""
        return self._ask("enter", name)

    def error(self, results: list[torch.Tensor]) -> float:
        """See `Party`."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "results.pt")
            torch.save([result.cpu() for result in results], path)
            return self._ask("error", str(path))

    def sample(self, name: str, runs: int) -> float:
        """See `Party`."""
        return self._ask("sample", name, runs)

    def device_seconds(self, name: str, runs: int) -> float | None:
        """See `Party`."""
        return self._ask("device_seconds", name, runs)

    def finish(self) -> None:
        """See `Party`."""
        self._ask("finish")

    def _ask(self, method: str, *arguments: Any) -> Any:
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            pickle.dump((method, arguments), self._child.stdin)
            self._child.stdin.flush()
            problem, answer = pickle.load(self._child.stdout)
        except (EOFError, BrokenPipeError):
            raise RuntimeError(f"the peers' process ended in {method}{arguments}") from None
        if problem is not None:
            raise RuntimeError(problem)
        return answer


def serve(full: bool, who: str) -> None:
    """Answer requests on standard input until it ends."""
    from figures import sides
    from figures.party import Party
    from figures.subjects import cases

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what libraries print must not get between the answers
    party = Party(getattr(sides, who)())
    known = {(case.group, case.name): case for case in cases(full)}
    while True:
        try:
            method, arguments = pickle.load(requests)
        except EOFError:
            return
        if method in ("names", "start"):
            arguments = (known[arguments],)
        elif method == "error":
            arguments = (torch.load(arguments[0]),)
        try:
            answer = (None, getattr(party, method)(*arguments))
        except Exception as problem:  # the other process reports it and goes on
            answer = (f"{type(problem).__name__}: {problem}"[:500], None)
        pickle.dump(answer, answers)
        answers.flush()
