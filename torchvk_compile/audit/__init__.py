"""What ran where: proof that work stayed on the GPU, and the one gate every CPU fallback passes.

In: the runtime's counters, what the executor and the copies say of themselves, operators that ran or
would have to run on the CPU. Out: `Audit` (a ``with`` block's counts and their source lines),
a certificate, or UnsupportedOperatorError.
Forbidden: opening a device; running operators; letting a fallback pass uncounted.
"""

from __future__ import annotations

from torchvk_compile.audit.gate import CpuFallbackWarning, record_fallback, record_host_op
from torchvk_compile.audit.session import Audit, audit

__all__ = [
    "Audit",
    "CpuFallbackWarning",
    "audit",
    "record_fallback",
    "record_host_op",
]
