"""Compile Fourier transforms and complex functions for the device in use and print what its driver made of them.

In: the environment selects the device, usually RADV's null hardware. Out: JSON, statistics by kind.
Forbidden: reading results back; null hardware has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from torchvk_compile.plan.executor import loaded_plans


def _kinds() -> dict[str, tuple[Callable[..., Any], torch.Tensor]]:
    def numbers(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="vk")

    kinds: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
        f"fft {length}": (torch.fft.fft, numbers(64, length))
        for length in (8, 105, 1001, 1024, 4096, 8192, 1009)
    }
    kinds["fft columns"] = (lambda x: torch.fft.fft(x, dim=0), numbers(1024, 256))
    kinds["rfft"] = (torch.fft.rfft, numbers(64, 1000, dtype=torch.float32))
    kinds["irfft"] = (torch.fft.irfft, numbers(64, 501))
    kinds["float64"] = (torch.fft.fft, numbers(64, 2048, dtype=torch.complex128))
    for name in ("tanh", "asin", "acosh", "atanh", "sqrt", "log1p", "sigmoid"):
        kinds[name] = (getattr(torch, name), numbers(1000))
    kinds["pow"] = (lambda x: x**x, numbers(1000))
    kinds["matmul"] = (lambda x: x @ x.mT, numbers(128, 128))
    return kinds


def main() -> None:
    """Print statistics of every kernel as one JSON object."""
    result = {}
    for kind, (function, x) in _kinds().items():
        torch._dynamo.reset()
        others = loaded_plans()
        torch.compile(function, backend="torchvk", dynamic=False)(x)
        kernels = [
            (name, kernel["statistics"])
            for plan in loaded_plans()
            if plan not in others
            for name, kernel in plan.pipeline_statistics().items()
        ]
        for name, statistics in kernels:
            result[f"{kind}: {name}"] = statistics
    print(json.dumps(result))


if __name__ == "__main__":
    main()
