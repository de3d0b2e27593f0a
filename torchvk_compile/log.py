"""The loggers ``torchvk`` and ``torchvk.<artifact>``: what TorchVK does, for those who ask.

In: ``config.log`` (TORCHVK_LOG). Out: loggers at their levels; they write to stderr unless the program
set up logging itself. Forbidden: warnings that a user has to act on (those are Python warnings).
"""

from __future__ import annotations

import logging

from torchvk_compile import config


def logger(artifact: str = "") -> logging.Logger:
    """The logger of one of ``config.ARTIFACTS``, or of TorchVK as a whole, at its present level."""
    ours = logging.getLogger("torchvk")
    words = config.log.split(",")
    level = next((word for word in words if word in config.LEVELS), "warning")
    ours.setLevel(level.upper())
    if not ours.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
        ours.addHandler(handler)
    if not artifact:
        return ours
    own = ours.getChild(artifact)
    if f"+{artifact}" in words:
        own.setLevel(logging.DEBUG)
    else:
        own.setLevel(logging.INFO if artifact in words else logging.NOTSET)
    return own
