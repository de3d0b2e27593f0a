"""Registering TorchVK's lowerings with Inductor.

In: the lowerings of this room. Out: entries in Inductor's table that act for vk tensors only. Forbidden: any change for
other devices.
"""

from __future__ import annotations


def register_lowerings() -> None:
    """Add TorchVK's lowerings to Inductor's table; called once."""
