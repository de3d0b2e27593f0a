"""Every exception a TorchVK user can meet.

In: what went wrong, in words. Out: an exception that names it and says what to do.
Forbidden: importing any other room of the package; catching or logging anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import torch

_FALLBACK_ADVICE = (
    "Move this part to the CPU yourself (`.cpu()`), write it with other operators, or allow CPU "
    'fallbacks: torchvk_compile.config.cpu_fallback = "warn" (TORCHVK_CPU_FALLBACK=warn).'
)


class TorchVKError(Exception):
    """Base of all TorchVK exceptions, for callers who want to catch any of them."""


class UnsupportedOperatorError(TorchVKError, NotImplementedError):
    """An operator has no GPU kernel, and running it on the CPU was not allowed.

    Attributes:
        op: the operator's name, as in ``aten.sort.stable``.
        dtype: the dtype that has no kernel, or None when no dtype has one.
        shape: the shape of the first tensor argument, or None when it does not matter.
        reason: why there is no kernel, or an empty string.
        place: ``file:line`` of the program that calls it in a compiled graph, or an empty string;
            an eager call's traceback ends there anyway.
    """

    def __init__(
        self,
        op: str,
        *,
        dtype: torch.dtype | str | None = None,
        shape: Sequence[object] | None = None,
        reason: str = "",
    ) -> None:
        self.op = op
        self.dtype = dtype
        self.shape = None if shape is None else tuple(shape)
        self.reason = reason
        self.place = ""
        super().__init__(op)

    def __str__(self) -> str:
        subject = f"torchvk has no GPU kernel for {self.op}"
        if self.dtype is not None:
            subject += f" with dtype {str(self.dtype).removeprefix('torch.')}"
        if self.shape is not None:
            subject += f" and shape ({', '.join(map(str, self.shape))})"
        if self.reason:
            subject += f": {self.reason.rstrip('.')}"
        if self.place:
            subject += f" (called at {self.place})"
        return f"{subject.rstrip('.')}. {_FALLBACK_ADVICE}"


class DtypeMismatchError(TorchVKError, RuntimeError):
    """An operator was given operands of dtypes that torch does not mix."""


class ShaderCompileError(TorchVKError, RuntimeError):
    """Slang refused a shader module, or no Slang compiler could be found.

    Attributes:
        diagnostics: the compiler's own text (may be empty).
        source_path: where the offending Slang source was saved, or None.
    """

    def __init__(
        self, summary: str, *, diagnostics: str = "", source_path: Path | None = None
    ) -> None:
        self.diagnostics = diagnostics
        self.source_path = source_path
        lines = [summary]
        if diagnostics.strip():
            lines.append(diagnostics.strip())
        if source_path is not None:
            lines.append(
                f"The Slang source is in {source_path}. Generated code that Slang refuses is a fault "
                "of TorchVK: please report it with that file and the output of `torchvk doctor`."
            )
        super().__init__("\n".join(lines))


class CorruptCacheError(TorchVKError, RuntimeError):
    """A compiled graph on disk cannot be loaded, and dropping damaged files did not help."""


class UnwritableCacheError(TorchVKError, RuntimeError):
    """Inductor's cache of generated modules cannot be written, and compiled graphs are loaded from there."""


class NotGpuOnlyError(TorchVKError, RuntimeError):
    """An audit cannot certify that everything ran on the GPU: something ran on the CPU."""


class UsageError(TorchVKError, ValueError):
    """A command was given something it cannot use: a missing directory, an unknown device."""


class CorruptDataError(TorchVKError, ValueError):
    """A file exists but does not hold what its format promises."""


class VulkanError(TorchVKError, RuntimeError):
    """A Vulkan call failed; the message names the call and the meaning of its result."""


class DeviceLostError(VulkanError):
    """The driver gave the device up (reset, watchdog, removal). Later calls fail the same way.

    The message ends with the graphs submitted last, as `recent_work` names them: the GPU was in one of
    them, or in a transfer between them.
    """

    recent_work: ClassVar[Callable[[], str]] = staticmethod(str)

    def __init__(self, message: str) -> None:
        recent = DeviceLostError.recent_work()
        super().__init__(f"{message} Submitted last: {recent}." if recent else message)


class DeviceAssertError(TorchVKError, IndexError, RuntimeError):
    """A check inside a kernel failed, most often an index out of range.

    It surfaces at the next synchronisation. Eager CPU code raises IndexError or RuntimeError for
    the same mistake, so both ``except`` clauses catch it.
    """


class OutOfMemoryError(TorchVKError, torch.OutOfMemoryError):
    """Device memory is exhausted, also after cached blocks were freed. Tensors stay valid."""


def register_with_runtime() -> None:
    """Tell the C++ runtime which classes to raise. Call it once, before any other runtime call."""
    from torchvk_compile import _runtime

    _runtime.register_exceptions(VulkanError, DeviceLostError, OutOfMemoryError, DeviceAssertError)
