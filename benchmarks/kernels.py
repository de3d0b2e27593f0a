"""How fast TorchVK's kernels and training steps are, beside the best that the machine has otherwise.

In: a device. Out: a table and, with ``--json FILE``, every sample. Forbidden: asserting speeds.

    python benchmarks/kernels.py --device vk --json build/kernels.json

With an NVIDIA GPU and a CUDA build of torch the peers are CUDA eager (cuBLAS, cuDNN, its attention),
Inductor and, for small kernels, CUDA graphs; without, CPU eager and torchvulkan, if `torchvk bench --install-peer`
installed it. A software rasteriser gets smaller sizes.
Every result is checked against float64; the process ends with status 1 if one of TorchVK's is wrong or a case
fails.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import sys
from pathlib import Path

import torch
from figures import report
from figures.apart import PartyApart
from figures.clock import interleaved
from figures.party import Party
from figures.sides import OURS, torchvk
from figures.sides import peers as peers_here
from figures.subjects import cases

from torchvk_compile.bench.peers import find_torchvulkan

_ROUNDS, _QUICK_ROUNDS = 9, 3
_PROFILED_RUNS = 10
_COMPARISON = "comparison"


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
    device = torch.device(arguments.device)
    full = not (_is_software(device) or arguments.small)
    parties = _parties(device, full)
    machine = _machine(arguments.device)
    results: list[report.Result] = []
    for case in cases(full, arguments.only):
        print(f"{case.group}: {case.name}", file=sys.stderr, flush=True)
        rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
        result = report.Result(case)
        try:
            _measure(result, parties, rounds)
        except Exception as problem:  # out of memory in the reference, for one
            result.failures[_COMPARISON] = f"{type(problem).__name__}: {problem}"[:500]
        results.append(result)
        if arguments.json is not None:
            report.write(arguments.json, machine, results)
    report.show(machine, results)
    ours = {OURS, _COMPARISON}
    return 1 if any(ours & result.failures.keys() for result in results) else 0


def _parties(device: torch.device, full: bool) -> list[Party | PartyApart]:
    if torch.cuda.is_available():
        peers = PartyApart(full)
        return [Party([torchvk(device)], peers.error), peers]
    here = Party([torchvk(device), *peers_here()])
    torchvulkan = find_torchvulkan()
    if torchvulkan is None:
        return [here]
    return [PartyApart(full, "torchvulkan", torchvulkan), here]


def _measure(result: report.Result, parties: list[Party | PartyApart], rounds: int) -> None:
    case = result.case
    try:
        for party in reversed(parties):  # the last one has the reference
            party.start(case)
        running: dict[str, Party | PartyApart] = {}
        for party in parties:
            for name in party.names(case):
                try:
                    error = party.enter(name)
                except Exception as problem:  # a case that fails must not hide the others
                    result.failures[name] = f"{type(problem).__name__}: {problem}"[:500]
                    continue
                result.errors[name] = error
                if name == OURS and not error <= case.tolerance:
                    result.failures[name] = f"error {error:.2e} above {case.tolerance:.0e}"
                    continue
                running[name] = party
        result.times = interleaved(
            {name: functools.partial(party.sample, name) for name, party in running.items()},
            rounds,
        )
        if torch.cuda.is_available():
            for name, party in running.items():
                seconds = party.device_seconds(name, _PROFILED_RUNS)
                if seconds is not None:
                    result.device_seconds[name] = seconds
    finally:
        for party in parties:
            party.finish()


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
