"""The process that runs cases; it may crash or be killed at any time.

In: case keys, one a line, on the standard input. Out: results as JSON, one a line, on the standard
output as it was at the start. Forbidden: surviving a lost device.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import warnings

_MEMORY_LIMIT = 6 << 30


def main() -> None:
    """Answer case keys until the input ends, the device is lost or memory runs full."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--forward", type=int, required=True)
    parser.add_argument("--backward", type=int, required=True)
    options = parser.parse_args()

    # Results must not mix with what operators print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # It can serve a graph that was made for inputs with other aliasing.
    os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")
    warnings.simplefilter("ignore")

    from .cases import Case
    from .execution import Limits
    from .runners import run
    from .trials import ProcessPoisoned

    limits = Limits(options.forward, options.backward)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        case = Case.from_key(line.strip())
        poisoned = False
        try:
            result = run(case, limits)
        except ProcessPoisoned as error:
            result, poisoned = error.result, True
        leaving = poisoned or _memory_used() > _MEMORY_LIMIT
        print(json.dumps({**result.to_json(), "leaving": leaving}), file=answers, flush=True)
        if leaving:
            return


def _memory_used() -> int:
    """Largest resident size so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
