"""Fixtures of the lowering tests.

In: nothing. Out: `seeded` and `fresh_graphs`, for files that name them with ``pytest.mark.usefixtures``.
Forbidden: opening a device.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config as inductor_config


@pytest.fixture
def seeded() -> None:
    """Random numbers are the same in every run."""
    torch.manual_seed(0)


@pytest.fixture
def fresh_graphs(seeded: None) -> Iterator[None]:
    """Every graph is compiled anew: torch's caches do not know what a test has replaced."""
    torch._dynamo.reset()
    with inductor_config.patch(force_disable_caches=True):
        yield
