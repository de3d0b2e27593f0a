"""The special functions that the Slang library implements, by Inductor's names.

In: nothing. Out: names of unary and binary operations of torchvk_special.
Forbidden: operations that Inductor decomposes before code generation.
"""

from __future__ import annotations

UNARY_SPECIAL: tuple[str, ...] = ()
BINARY_SPECIAL: tuple[str, ...] = ()
