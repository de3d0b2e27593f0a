"""Running an operator on CPU copies, where ``config.cpu_fallback`` allows it.

In: a call the compiler refused. Out: a runner that counts, computes on the CPU and copies back.
Forbidden: running without `audit.record_fallback` having agreed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchvk_compile.audit import record_fallback
from torchvk_compile.device import rewrites
from torchvk_compile.device.operators import OperatorInfo
from torchvk_compile.errors import UnsupportedOperatorError


def runner(
    op: torch._ops.OpOverload, info: OperatorInfo, refusal: UnsupportedOperatorError
) -> Callable[[list[torch.Tensor], tuple[Any, ...], dict[str, Any]], Any]:
    """A runner for calls like the one that was refused.

    Raises:
        UnsupportedOperatorError: the refusal, if fallbacks are not allowed.
    """

    def run(found: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        record_fallback(refusal.op, refusal.reason, dtype=refusal.dtype, shape=refusal.shape)
        device = next((t.device for t in found if t.device.type == "vk"), kwargs.get("device"))
        host_args, host_kwargs = pytree.tree_map(_to_host, (args, kwargs))
        if "device" in host_kwargs:
            host_kwargs["device"] = torch.device("cpu")
        results = rewrites.plain_call(op, host_args, host_kwargs)
        originals = info.written_tensors(args, kwargs)
        for original, host in zip(
            originals, info.written_tensors(host_args, host_kwargs), strict=True
        ):
            if original.shape != host.shape:
                original.resize_(host.shape)
            original.copy_(host)
        return _results(info, results, args, kwargs, device)

    return run


def _results(
    info: OperatorInfo,
    results: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device | None,
) -> Any:
    written = list(info.written_tensors(args, kwargs))
    if not info.returns:
        return None
    if all(source is not None for source in info.returns):
        return written[0] if len(written) == 1 else tuple(written)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), results)


def _to_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
