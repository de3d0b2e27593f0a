"""Fixtures of the lowering tests.

In: nothing. Out: `fresh_graphs`, for files that name it with ``pytest.mark.usefixtures``. Forbidden: opening a device.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config as inductor_config


@pytest.fixture
def fresh_graphs() -> Iterator[None]:
    """Every graph is compiled anew, from one seed: torch's caches do not know what a test has replaced."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with inductor_config.patch(force_disable_caches=True):
        yield
