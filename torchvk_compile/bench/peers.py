"""CUDA, and other Vulkan packages for PyTorch, each in a process of its own.

In: a Python interpreter that has the package. Out: a `Way`.
Forbidden: running a peer here. PyTorch has one accelerator a process, so where TorchVK is loaded the backward pass of
CUDA tensors fails; torchvulkan is the one PrivateUse1 device, as TorchVK is.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import torch

from torchvk_compile import cache
from torchvk_compile.errors import UsageError

TORCHVULKAN_HINT = (
    "not installed; `torchvk bench --install-peer` does (it stays out of this environment)"
)

_SERVE = "import sys; sys.path.append(sys.argv.pop(1)); from workloads.serve import main; main()"
_END_SECONDS = 10


def peer_environment() -> Path:
    """Where `install_torchvulkan` puts torchvulkan."""
    return cache.directory() / "peers" / "torchvulkan"


def find_torchvulkan() -> Path | None:
    """The interpreter of the environment that `install_torchvulkan` made, or None."""
    python = _interpreter(peer_environment())
    return python if python.exists() else None


def install_torchvulkan() -> Path:
    """Make an environment with torchvulkan beside this one's PyTorch. Returns its interpreter.

    Raises UsageError when the package cannot be installed.
    """
    directory = peer_environment()
    try:
        venv.create(directory, with_pip=True, clear=True)
        python = _interpreter(directory)
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-deps", "torchvulkan"],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise UsageError(f"pip install torchvulkan failed: {done.stderr.strip()[-600:]}")
        # PyTorch is shared: another copy takes gigabytes, and the comparison wants the same one.
        shared = dict.fromkeys([sysconfig.get_paths()["purelib"], *_search_path()])
        own = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
        (own / "shared-torch.pth").write_text("\n".join(shared) + "\n", encoding="utf-8")
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"cannot make an environment in {directory}: {error}") from None
    return python


def _search_path() -> list[str]:
    """Directories that hold this environment's packages."""
    return [path for path in (*site.getsitepackages(), *sys.path) if Path(path, "torch").is_dir()]


def _interpreter(directory: Path) -> Path:
    return directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def cuda_process(name: str, backend: str | None) -> PeerProcess:
    """PyTorch's own CUDA device, in a process without TorchVK; see `PeerProcess`."""
    return PeerProcess(name, Path(sys.executable), "torch", "cuda", backend)


class PeerProcess:
    """A way whose work is done by another process, one request at a time.

    Args:
        name: key of `ways.LABELS`.
        python: interpreter that has the package.
        module: package to import.
        device: name of its device.
        backend: of torch.compile; None for eager.

    Raises:
        RuntimeError: when the process does not start.
    """

    def __init__(
        self, name: str, python: Path, module: str, device: str, backend: str | None = None
    ) -> None:
        self.name = name
        self._numbers = itertools.count()
        self._command = [str(python), "-c", _SERVE, str(Path(__file__).parent), module, device]
        if backend is not None:
            self._command.append(backend)
        self._process: subprocess.Popen[str] | None = None
        ready = self._start()
        self.version = str(ready["ready"])
        self.device_name = str(ready["device"])

    def _start(self) -> dict[str, Any]:
        # Without autoloading, TorchVK does not take the device type that the peer needs.
        settings = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHVULKAN_STRICT": "1"}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCHVK_")}
        self._log: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115  (as long as the process)
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            self._command,
            env=environment | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        return self._answer()

    def request(self, **request: Any) -> dict[str, Any]:
        """Ask the process. Raises RuntimeError with what it answered, or with its last words if it died."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it died; the answer says so
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(_END_SECONDS)
            self._log.seek(0)
            last = self._log.read().strip().splitlines()[-1:]
            raise RuntimeError(f"{self.name}'s process ended ({code}): {' '.join(last)[-300:]}")
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer

    def open(self, case: Mapping[str, Any]) -> PeerWork:
        """See `ways.Way`."""
        job = f"job{next(self._numbers)}"
        return PeerWork(self, job, self.request(do="open", job=job, case=dict(case)))

    def train(
        self,
        case: Mapping[str, Any],
        data: Mapping[str, torch.Tensor],
        on_epoch: Callable[[int, float], None] = lambda epoch, accuracy: None,
    ) -> dict[str, Any]:
        """See `ways.Way`."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "data.pt"
            torch.save(dict(data), path)
            outcome = self.request(do="train", case=dict(case), data=str(path))
        for number, epoch in enumerate(outcome["epochs"], 1):
            on_epoch(number, epoch["accuracy"])
        return outcome

    def end(self) -> None:
        """End the process."""
        if self._process is None:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):  # it died with a request in its pipe
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class PeerWork:
    """A job of a peer's process; see `ways.Opened`."""

    def __init__(self, way: PeerProcess, job: str, work: dict[str, Any]) -> None:
        self._way = way
        self._job = job
        self._work = work

    def sample(self, calls: int) -> float:
        """See `timing.Sampler`."""
        return float(self._way.request(do="sample", job=self._job, calls=calls)["seconds"])

    def check(self) -> dict[str, Any]:
        """See `workloads.Job.check`."""
        return self._way.request(do="check", job=self._job)

    def facts(self) -> dict[str, Any]:
        """The peer's version, seconds to the end of the first step, least bytes and operations."""
        return {"version": self._way.version, **self._work}

    def close(self) -> None:
        """Have the process drop the job."""
        self._way.request(do="close", job=self._job)
