"""The command ``torchvk``.

In: command line arguments. Out: an exit status: 0 good, 1 it failed, 2 it was called wrongly.
Forbidden: doing the work of a command; importing a command's room before it was chosen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torchvk_compile import config
from torchvk_compile.errors import TorchVKError, UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``torchvk`` with these arguments (default: the process's). Returns the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        _check_environment()
        return parsed.run(parsed)
    except UsageError as error:
        return _complain(parsed.command, error, status=2)
    except (TorchVKError, OSError) as error:
        return _complain(parsed.command, error, status=1)
    except KeyboardInterrupt:
        return 130


def _check_environment() -> None:
    """Refuse invalid ``TORCHVK_*`` variables now, and point out misspelt ones."""
    try:
        config.to_dict()
    except ValueError as error:
        raise UsageError(str(error)) from None
    config.warn_about_unknown_variables()


def _complain(command: str, error: Exception, status: int) -> int:
    print(f"torchvk {command}: {error}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchvk", description="PyTorch on any GPU with a Vulkan driver."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_doctor(commands)
    _add_demo(commands)
    _add_inspect(commands)
    _add_bench(commands)
    return parser


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "say whether this machine can train on Vulkan, and if not, why"
    doctor = commands.add_parser(
        "doctor",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Exits with 1 if training cannot work.",
    )
    doctor.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=Path("-"),
        metavar="FILE",
        help="write everything as JSON to FILE; without FILE to stdout, in place of the report",
    )
    doctor.add_argument(
        "--timeout",
        type=_positive,
        default=120,
        metavar="SECONDS",
        help="longest time for one check of the self-test (120)",
    )
    doctor.set_defaults(run=_run_doctor)


def _run_doctor(parsed: argparse.Namespace) -> int:
    from torchvk_compile.doctor import DoctorOptions, run

    return run(DoctorOptions(json=parsed.json, timeout=parsed.timeout))


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "train a digit classifier on Vulkan and compare it with the CPU"
    demo = commands.add_parser("demo", help=text, description=text[0].upper() + text[1:] + ".")
    demo.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="directory with MNIST's IDX files, gzipped or not (default: scikit-learn's digits)",
    )
    demo.add_argument("--epochs", type=_positive, metavar="N", help="passes over the data")
    demo.add_argument(
        "--batch-size", type=_positive, default=64, metavar="N", help="images per step (64)"
    )
    demo.add_argument("--device", default="vk", help="vk, or vk:1 for the second GPU, …")
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    demo.add_argument(
        "--audit",
        type=Path,
        metavar="FILE",
        help="write what ran where there, with the source lines, and a certificate (JSON)",
    )
    demo.add_argument(
        "--dump-shaders", type=Path, metavar="DIR", help="keep the generated Slang and SPIR-V there"
    )
    demo.set_defaults(run=_run_demo)


def _run_demo(parsed: argparse.Namespace) -> int:
    from torchvk_compile.demo import DemoOptions, run

    run(
        DemoOptions(
            data=parsed.data,
            epochs=parsed.epochs,
            batch_size=parsed.batch_size,
            device=parsed.device,
            json=parsed.json,
            audit=parsed.audit,
            dump_shaders=parsed.dump_shaders,
        )
    )
    return 0


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "run the six experiments, TorchVK beside its peers, and report"
    bench = commands.add_parser(
        "bench",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. An interrupted run goes on where it stopped.",
        epilog="torchvk bench report DIR writes the report of results that are there already; torchvk bench "
        "predict DIR adds a prediction for the Radeon RX 5600 XT to them.",
    )
    bench.add_argument(
        "what", nargs="*", metavar="E1 … E6", help="experiments (all), or: report DIR, predict DIR"
    )
    bench.add_argument("--quick", action="store_true", help="small sizes: minutes on two CPU cores")
    bench.add_argument(
        "--data", type=Path, metavar="DIR", help="directory with MNIST's and CIFAR-10's files"
    )
    bench.add_argument(
        "--download", action="store_true", help="fetch both into --data (./data) first"
    )
    bench.add_argument(
        "--output", type=Path, default=Path("results"), metavar="DIR", help="results go there"
    )
    bench.add_argument("--device", default="vk", help="vk, or vk:1 for the second GPU, …")
    bench.add_argument("--fresh", action="store_true", help="begin anew, keeping old results aside")
    bench.add_argument("--no-peers", action="store_true", help="leave other packages out")
    bench.add_argument("--plan", type=Path, metavar="FILE", help="another plan than the committed")
    bench.add_argument(
        "--other-plan", action="store_true", help="report results that another plan was used for"
    )
    bench.add_argument(
        "--install-peer", action="store_true", help="install torchvulkan, apart from this package"
    )
    bench.set_defaults(run=_run_bench)


def _run_bench(parsed: argparse.Namespace) -> int:
    try:
        from torchvk_compile.bench import command
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing: pip install 'torchvk-compile[bench]' brings it"
        ) from None
    if parsed.install_peer:
        command.install_peer()
        return 0
    if parsed.what and parsed.what[0] in ("report", "predict"):
        verb = parsed.what[0]
        if len(parsed.what) != 2:
            raise UsageError(f"{verb} takes one directory with results: torchvk bench {verb} DIR")
        directory = Path(parsed.what[1])
        if verb == "report":
            command.report(directory, parsed.plan, other_plan=parsed.other_plan)
        else:
            command.predict(directory, parsed.plan)
        return 0
    command.run(
        command.BenchOptions(
            experiments=tuple(parsed.what),
            quick=parsed.quick,
            data=parsed.data,
            download=parsed.download,
            output=parsed.output,
            device=parsed.device,
            plan=parsed.plan,
            fresh=parsed.fresh,
            peers=not parsed.no_peers,
        )
    )
    return 0


def _add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "show what a compiled model became: kernels, sources, memory plan, times"
    inspect = commands.add_parser(
        "inspect", help=text, description=text[0].upper() + text[1:] + "."
    )
    inspect.add_argument(
        "subject",
        metavar="SCRIPT_OR_MODULE:CALLABLE",
        help="a function without arguments that returns (compiled model, its inputs)",
    )
    inspect.add_argument("--json", type=Path, metavar="FILE", help="write everything there as JSON")
    inspect.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page there that needs nothing else"
    )
    inspect.add_argument(
        "--target",
        metavar="NAME",
        help="also compile for a card that is not there: navi10 (Radeon RX 5600 XT)",
    )
    inspect.add_argument(
        "--runs", type=_positive, default=5, metavar="N", help="calls to measure (5)"
    )
    inspect.add_argument("--quiet", action="store_true", help="print no tables")
    inspect.set_defaults(run=_run_inspect)


def _run_inspect(parsed: argparse.Namespace) -> int:
    from torchvk_compile.inspection.command import InspectOptions, run

    return run(
        InspectOptions(
            subject=parsed.subject,
            json=parsed.json,
            html=parsed.html,
            target=parsed.target,
            runs=parsed.runs,
            quiet=parsed.quiet,
        )
    )


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return value
