"""How fast TorchVK's kernels and training steps are, beside the best that the machine has otherwise.

In: a device. Out: a table and, with ``--json FILE``, every sample. Forbidden: asserting speeds.

    python benchmarks/kernels.py --device vk --json build/kernels.json

With an NVIDIA GPU and a CUDA build of torch the peers are CUDA eager (cuBLAS, cuDNN, its attention),
Inductor and, for small kernels, CUDA graphs; without, CPU eager. A software rasteriser gets smaller sizes.
Every result is checked against float64; the process ends with status 1 if one is wrong or a case fails.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

import torch
from figures import (
    attention,
    convolution,
    matmul,
    normalisation,
    pointwise,
    replay,
    report,
    training,
)
from figures.case import Case, Program, tensors
from figures.clock import Contestant, interleaved
from figures.sides import OURS, Side, graph_side, reference_place, sides

_SUBJECTS = (pointwise, normalisation, matmul, convolution, attention, training, replay)
_ROUNDS, _QUICK_ROUNDS = 9, 3
_PROFILED_RUNS = 10


def main() -> int:
    """Measure the cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="vk", help="TorchVK's device (default: vk)")
    parser.add_argument("--json", type=Path, help="write all samples there")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_ROUNDS} rounds, not {_ROUNDS}"
    )
    parser.add_argument(
        "--only", default="", help="cases with this in group or name; commas separate"
    )
    parser.add_argument("--small", action="store_true", help="small sizes on a GPU too")
    arguments = parser.parse_args()
    contestants = sides(arguments.device)
    software = _is_software(torch.device(arguments.device))
    machine = _machine(arguments.device)
    results: list[report.Result] = []
    for case in _cases(not (software or arguments.small), arguments.only):
        print(f"{case.group}: {case.name}", file=sys.stderr, flush=True)
        rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
        result = report.Result(case)
        try:
            _measure(result, contestants, rounds)
        except Exception as problem:  # out of memory in the reference, for one
            result.failures["comparison"] = f"{type(problem).__name__}: {problem}"[:500]
        results.append(result)
        if arguments.json is not None:
            report.write(arguments.json, machine, results)
    report.show(machine, results)
    return 1 if any(result.failures for result in results) else 0


def _cases(full: bool, only: str) -> list[Case]:
    return [
        case
        for subject in _SUBJECTS
        for case in subject.cases(full)
        if any(part in f"{case.group} {case.name}" for part in only.split(","))
    ]


def _measure(result: report.Result, contestants: list[Side], rounds: int) -> None:
    case = result.case
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(case.precision)
    try:
        with_graph = graph_side() if case.replayable else None
        entered = [*contestants, with_graph] if with_graph is not None else contestants
        reference = _outputs(case.build(reference_place()), case.checked_runs)
        running: dict[str, tuple[Side, Program]] = {}
        for side in entered:
            torch._dynamo.reset()
            try:
                program = side.wrap(case.build(side.place))
                error = _error(_outputs(program, case.checked_runs), reference)
            except Exception as problem:  # a case that fails must not hide the others
                result.failures[side.name] = f"{type(problem).__name__}: {problem}"[:500]
                continue
            result.errors[side.name] = error
            if not error <= case.tolerance:
                result.failures[side.name] = f"error {error:.2e} above {case.tolerance:.0e}"
                if side.name == OURS:
                    continue
            running[side.name] = (side, program)
        del reference
        result.times = interleaved(
            {
                name: Contestant(program, side.synchronize)
                for name, (side, program) in running.items()
            },
            rounds,
        )
        if torch.cuda.is_available():
            for name, (side, program) in running.items():
                if side.device_seconds is not None:
                    result.device_seconds[name] = side.device_seconds(program, _PROFILED_RUNS)
    finally:
        torch.set_float32_matmul_precision(before)
        torch._dynamo.reset()


def _outputs(program: Program, runs: int) -> list[torch.Tensor]:
    return [tensor.clone() for _ in range(runs) for tensor in tensors(program())]


def _error(results: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """Largest over the outputs of max |result - reference| / max |reference|; NaN counts as infinite."""
    worst = 0.0
    for result, expected in zip(results, reference, strict=True):
        # A vk tensor reaches another GPU through host memory.
        difference = (result.cpu().to(expected.device).double() - expected.double()).abs().max()
        error = float(difference / expected.double().abs().max().clamp_min(1e-300))
        worst = max(worst, error if error == error else float("inf"))
    return worst


def _machine(device: str) -> dict[str, str]:
    found = {"device": torch.vk.get_device_name(torch.device(device))}  # type: ignore[attr-defined]
    if torch.cuda.is_available():
        found["peer"] = f"CUDA {torch.version.cuda} on {torch.cuda.get_device_name()}"
    else:
        found["peer"] = f"CPU, {torch.get_num_threads()} threads"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    # A busy machine shows in the spread of the samples; the load says why.
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return found | {"versions": versions, "load": f"load {load:.1f}"}


def _is_software(device: torch.device) -> bool:
    from torchvk_compile.device import profile

    return profile(device.index or 0).device_type == "cpu"


if __name__ == "__main__":
    sys.exit(main())
