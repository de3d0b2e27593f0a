"""Rendering the Jinja templates of Slang kernels.

In: template names and values. Out: Slang text. Forbidden: decisions about what to generate.
"""

from __future__ import annotations

import functools
from typing import Any

import jinja2

from torchvk_compile.shaders import template_root

KERNEL_NAME = "KERNEL_NAME"
"""Stands for an entry point's name until the kernel is known to be new to its module."""


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_root()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **values: Any) -> str:
    """The text of `codegen_templates/<template>` with `values` filled in."""
    return _environment().get_template(template).render(**values)
