"""Every plain ```python block of README.md and docs/*.md runs, page by page, as a reader would type it.

In: the pages. Out: one test a page; a failure's traceback points into the page itself.
Forbidden: knowing any page. A block that cannot run here says so in its fence: ```python norun.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]

# The fence may be indented, inside a list; its closing fence then is, too.
_BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)


def _python_of(text: str) -> str:
    """The page's runnable blocks at the lines where they stand, everything else as empty lines."""
    lines = [""] * text.count("\n")
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start("code"))
        indent = len(block["indent"])
        for number, line in enumerate(block["code"].splitlines(), start=first):
            lines[number] = line[indent:]
    return "\n".join(lines) + "\n"


def _runnable() -> list[Path]:
    return [page for page in _PAGES if _python_of(page.read_text(encoding="utf-8")).strip()]


@pytest.fixture
def as_if_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, a fixed seed, nothing compiled before or left behind."""
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def test_only_plain_fences_are_found() -> None:
    page = "text\n```python\na = 1\n```\n```python norun\nb\n```\n- item\n  ```python\n  c = a\n  ```\n"
    assert _python_of(page).splitlines() == ["", "", "a = 1", *[""] * 6, "c = a", ""]


def test_readme_links_every_page() -> None:
    readme = _PAGES[0].read_text(encoding="utf-8")
    assert [page.name for page in _PAGES[1:] if f"](docs/{page.name})" not in readme] == []


@pytest.mark.parametrize("page", _runnable(), ids=lambda page: page.stem)
def test_page_runs(page: Path, vk: torch.device, as_if_alone: None) -> None:
    code = compile(_python_of(page.read_text(encoding="utf-8")), str(page), "exec")
    names: dict[str, Any] = {"__name__": page.stem}
    exec(code, names)
