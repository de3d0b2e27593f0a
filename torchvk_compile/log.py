"""The logger ``torchvk``: what TorchVK does, for those who ask with ``TORCHVK_LOG``.

In: ``config.log``. Out: a logger at that level; it writes to stderr unless the program set up
logging itself. Forbidden: warnings that a user has to act on (those are Python warnings).
"""

from __future__ import annotations

import logging

from torchvk_compile import config


def logger() -> logging.Logger:
    """The logger, at the level that ``config.log`` has now."""
    ours = logging.getLogger("torchvk")
    ours.setLevel(config.log.upper())
    if not ours.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("torchvk %(levelname)s: %(message)s"))
        ours.addHandler(handler)
    return ours
