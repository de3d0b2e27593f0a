"""Tests of the compiler start without anything compiled.

In: every test of this directory. Out: a Dynamo that has forgotten the last one. Forbidden: anything else.
"""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """torch compiles one function eight times at most, then runs it eagerly; `nn.Linear.forward` is one function."""
    torch._dynamo.reset()
