"""What a dispatch is, in the user's words: operators, modules, lines.

In: a plan and one of its steps. Out: short texts. Forbidden: measuring; looking at more than the plan.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchvk_compile.plan.graph_plan import Dispatch, GraphPlan
from torchvk_compile.plan.origins import Frame, Origin

# Operators that only rename memory; a kernel's name is better without them.
_VIEWS = frozenset(
    """aten.view aten.reshape aten.permute aten.t aten.transpose aten.expand aten.unsqueeze aten.squeeze aten.slice
    aten.select aten.alias aten.as_strided aten.detach""".split()  # noqa: SIM905
)


def operator_name(origin: Origin) -> str:
    """The operator as the program called it: ``aten.gelu``, without its overload."""
    name = origin.composite or origin.op
    return ".".join(name.split(".")[:2])


def operators(origins: Iterable[Origin]) -> list[str]:
    """Distinct operators in the order of the graph; views only where there is nothing else."""
    names = list(dict.fromkeys(operator_name(origin) for origin in origins))
    return [name for name in names if name not in _VIEWS] or names


def modules(origins: Iterable[Origin]) -> list[str]:
    """Distinct paths of modules, in the order of the graph."""
    return list(dict.fromkeys(origin.module for origin in origins if origin.module))


def source_frames(origins: Iterable[Origin]) -> list[Frame]:
    """Distinct lines of the user's program, innermost ones, in the order of the graph."""
    return list(dict.fromkeys(origin.frames[0] for origin in origins if origin.frames))


def places(frames: Iterable[Frame]) -> list[str]:
    """``file:line`` of each frame, once."""
    return list(dict.fromkeys(str(frame) for frame in frames))


def operators_of(plan: GraphPlan, step: Dispatch) -> list[str]:
    """`operators` of a step."""
    return operators(plan.origins_of(step))


def places_of(plan: GraphPlan, step: Dispatch) -> list[str]:
    """Places of a step's lines."""
    return places(source_frames(plan.origins_of(step)))
