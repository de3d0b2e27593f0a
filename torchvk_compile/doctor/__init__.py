"""``torchvk doctor``: can this machine train on Vulkan, and if not, why.

In: the machine. Out: a report (text, JSON) and an exit status.
Forbidden: loading a Vulkan driver into this process; whatever a driver may do (crash, hang, write
nothing) happens in a child process with a time limit.
"""

from __future__ import annotations

from torchvk_compile.doctor.command import DoctorOptions, run

__all__ = ["DoctorOptions", "run"]
