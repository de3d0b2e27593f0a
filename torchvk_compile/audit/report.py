"""An audit as text.

In: the audit's plain data. Out: lines for people.
Forbidden: counting.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_TITLES = {
    "cpu": "Computed on the CPU",
    "dispatch": "Kernels",
    "upload": "Copies to the device",
    "download": "Copies to the host",
    "copy": "Copies on the device",
    "fill": "Fills",
}
_UNKNOWN_PLACE = "(no line of the program)"


def render(audit: dict[str, Any], width: int) -> str:
    """The summary, then one table for each kind of entry."""
    target = io.StringIO()
    console = Console(file=target, width=width, highlight=False, color_system=None)
    for line in _summary(audit):
        console.print(line, markup=False, soft_wrap=True)
    for kind, title in _TITLES.items():
        entries = [entry for entry in audit["entries"] if entry["kind"] == kind]
        if entries:
            console.print(_table(title, kind, entries))
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines())


def _summary(audit: dict[str, Any]) -> Iterable[str]:
    return (
        f"GPU only       {'yes' if audit['gpu_only'] else 'NO'}",
        f"dispatches     {audit['dispatches']} in {audit['submissions']} submissions "
        f"({audit['plan_runs']} graph calls, {audit['recordings']} recorded anew)",
        f"uploads        {audit['uploads']} ({audit['uploaded_bytes']:,} bytes)",
        f"downloads      {audit['downloads']} ({audit['downloaded_bytes']:,} bytes)",
        f"CPU fallbacks  {_listing(audit['fallbacks'])}",
        f"host operators {_listing(audit['host_ops'])}",
    )


def _table(title: str, kind: str, entries: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("line", overflow="fold", ratio=3)
    table.add_column("code" if kind not in ("cpu", "dispatch") else "operators", ratio=4)
    table.add_column("count", justify="right")
    transfers = kind in ("upload", "download", "copy", "fill")
    if transfers:
        table.add_column("bytes", justify="right")
    for entry in entries:
        row = [
            escape(entry["place"] or _UNKNOWN_PLACE),
            escape((entry["what"] or entry["code"]) if transfers else entry["what"]),
            str(entry["count"]),
        ]
        table.add_row(*row, *([f"{entry['nbytes']:,}"] if transfers else []))
    return table


def _listing(calls: dict[str, int]) -> str:
    ordered = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{op} ({number})" for op, number in ordered) or "none"
