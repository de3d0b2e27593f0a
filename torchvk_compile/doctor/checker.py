"""A program of its own: run checks on ``vk:0`` and print a line when one starts and when it ends.

In: names of checks as arguments. Out: on stdout, lines of `MARK` and JSON: ``{"name": ...}``, then the
fields of a `CheckResult`. Forbidden: ending because a check fails; only a driver may end it early.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import torch

from torchvk_compile import config
from torchvk_compile.doctor.checks import CHECKS
from torchvk_compile.doctor.poison import CheckFailedError
from torchvk_compile.doctor.selftest import MARK


def main(names: Sequence[str]) -> None:
    """Run the checks of these names."""
    # A fallback to the CPU would compare the CPU with itself.
    config.cpu_fallback = "error"
    by_name = {check.name: check for check in CHECKS}
    device = torch.device("vk", 0)
    for name in names:
        _emit(name=name)
        start = time.monotonic()
        outcome, detail = "pass", ""
        try:
            by_name[name].run(device)
        except CheckFailedError as error:
            outcome, detail = error.kind, str(error)
        except Exception as error:
            # Whatever it is, it belongs to this check and not to the next.
            outcome, detail = "error", f"{type(error).__name__}: {error}"
        _emit(name=name, outcome=outcome, detail=detail, seconds=time.monotonic() - start)


def _emit(**event: object) -> None:
    print(MARK + json.dumps(event), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
