"""All cases, by subject.

In: sizes wanted, a filter. Out: cases. Forbidden: TorchVK; processes without it read this, too.
"""

from __future__ import annotations

from figures import (
    attention,
    convolution,
    matmul,
    normalisation,
    order,
    pointwise,
    replay,
    training,
)
from figures.case import Case

_SUBJECTS = (pointwise, normalisation, matmul, convolution, attention, order, training, replay)


def cases(full: bool, only: str = "") -> list[Case]:
    """The cases with a part of `only` (commas separate) in group or name; `full` for a GPU's sizes."""
    return [
        case
        for subject in _SUBJECTS
        for case in subject.cases(full)
        if any(part in f"{case.group} {case.name}" for part in only.split(","))
    ]
