"""Which room runs a case.

In: a case. Out: its result. Forbidden: any logic of a database.
"""

from __future__ import annotations

from .cases import Case
from .execution import Limits
from .records import Result


def run(case: Case, limits: Limits) -> Result:
    """Run a case of any database in this process."""
    if case.database == "module":
        from .modules import run as run_module

        return run_module(case, limits)
    if case.database == "optimizer":
        from .optimizers import run as run_optimizer

        return run_optimizer(case, limits)
    from .operators import run as run_operator

    return run_operator(case, limits)
