"""Which of a database's sample inputs are run.

In: an entry, a dtype. Out: a few samples, spread over all there are, always the same. Forbidden:
choosing by result.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")


def seed_for(name: str) -> None:
    """Seed every generator that sample functions use, by an entry's name."""
    import numpy

    seed = zlib.crc32(name.encode())
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def spread(samples: Iterable[_T], count: int) -> list[tuple[int, _T]]:
    """`count` samples with their positions: first, last, evenly between; 0 takes all."""
    everything = list(samples)
    if count <= 0 or len(everything) <= count:
        return list(enumerate(everything))
    if count == 1:
        return [(0, everything[0])]
    last = len(everything) - 1
    positions = [round(i * last / (count - 1)) for i in range(count)]
    return [(position, everything[position]) for position in positions]


def needs_cuda(value: Any) -> bool:
    """Whether arguments name a CUDA device, or hold a tensor that lies on one."""
    if isinstance(value, torch.Tensor):
        return value.device.type == "cuda"
    if isinstance(value, (torch.device, str)):
        return str(value).startswith("cuda")
    if isinstance(value, dict):
        return any(map(needs_cuda, value.values()))
    return isinstance(value, (list, tuple)) and any(map(needs_cuda, value))


def summary(value: Any) -> str:
    """Arguments in one line, with tensors as dtype and sizes."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        text = f"{name}{list(value.shape)}"
        if value.layout != torch.strided:
            return f"{text} {value.layout}"
        return text if value.is_contiguous() else f"{text} strides {value.stride()}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={summary(item)}" for key, item in value.items())
    if type(value) in (list, tuple):
        return f"[{', '.join(summary(item) for item in value)}]"
    return repr(value)
