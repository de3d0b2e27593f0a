"""An inspection as one HTML page that needs nothing else.

In: an `Inspection`. Out: the page's text. Forbidden: measuring; references to anything on a network.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jinja2

from torchvk_compile.inspection.model import Inspection


def page(inspection: Inspection) -> str:
    """The page's HTML."""
    data = json.dumps(inspection.to_dict(), separators=(",", ":"))
    # Inside a script element, nothing but "<" could end it.
    return _template().render(inspection=inspection, data=data.replace("<", "\\u003c"))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("page_template")),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
