"""The page docs/navi10.md.

In: rows of `compile_models`. Out: Markdown. Forbidden: compiling.
"""

from __future__ import annotations

from typing import Any

_SHOWN = 8
_TEXT = """# Every kernel on the RX 5600 XT, as its compiler sees it

Written by `make target-navi10`. Mesa's RADV driver compiles every kernel of the test models, forward, backward and
optimizer, for a Navi 10 that is not there ({device}). Nothing was run on the card: registers, waves, spills and
instructions are the compiler's, times are predictions from them.

A dispatch is predicted to take the longer of two: its memory traffic at 288 GB/s (every buffer element once), or
issuing its vector instructions at 36 compute units x 64 lanes x 1.56 GHz. With a fused multiply-add in every
instruction that is 7.2 TFLOP/s. Both limits are AMD's product specification. "Roofline" is the share of the limit
that these two alone would set for the same work. Launch times, latency and cache misses are left out, so that real
times are longer.

"Waves" are wave64 per SIMD that the registers and the shared memory (LDS, bytes) allow, 20 at most; "FMA" is the
share of fused multiply-adds among the vector instructions of the innermost loop with the most of them (of the whole
kernel where it has none). Every compiled graph counts once, though torch runs an LSTM's time steps as one eager call
each.

| model | dispatches | spills | most VGPRs | fewest waves | predicted | roofline |
|---|---|---|---|---|---|---|
{summary}
"""


def page(device: str, models: dict[str, list[dict[str, Any]]]) -> str:
    """The page's text."""
    summary = "\n".join(_summary(name, rows) for name, rows in models.items())
    parts = [_TEXT.format(device=device, summary=summary)]
    parts += [_model(name, rows) for name, rows in models.items()]
    return "\n".join(parts)


def _summary(name: str, rows: list[dict[str, Any]]) -> str:
    total = sum(row["seconds"] for row in rows)
    limit = sum(row["limit"] for row in rows)
    spilling = sum(row["spills"] > 0 for row in rows)
    vgprs, waves = max(row["vgprs"] for row in rows), min(row["waves"] for row in rows)
    return (
        f"| {name} | {len(rows)} | {spilling} | {vgprs} | {waves:g} | {1e3 * total:.2f} ms "
        f"| {limit / total:.0%} |"
    )


def _model(name: str, rows: list[dict[str, Any]]) -> str:
    """The kernels that take longest, launches of one kernel together."""
    by_kernel: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["kernel"], row["vgprs"], row["lds"], row["bytes"], row["flops"])
        by_kernel.setdefault(key, []).append(row)
    longest = sorted(by_kernel.values(), key=lambda same: -sum(r["seconds"] for r in same))
    lines = [
        f"## {name}",
        "",
        "| kernel | launches | VGPRs | LDS | waves | FMA | predicted | roofline |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for same in longest[:_SHOWN]:
        row = same[0]
        seconds, limit = (sum(r[key] for r in same) for key in ("seconds", "limit"))
        lines.append(
            f"| `{_short(row['kernel'])}` | {len(same)} | {row['vgprs']} | {row['lds']} | {row['waves']:g} "
            f"| {row['fused_share']:.0%} | {1e6 * seconds:.1f} µs | {limit / seconds if seconds else 1:.0%} |"
        )
    rest = longest[_SHOWN:]
    if rest:
        seconds = sum(r["seconds"] for same in rest for r in same)
        lines.append(
            f"| {len(rest)} more | {sum(map(len, rest))} | | | | | {1e6 * seconds:.1f} µs | |"
        )
    return "\n".join([*lines, ""])


def _short(kernel: str) -> str:
    return kernel if len(kernel) <= 48 else f"{kernel[:30]}…{kernel[-16:]}"
