"""The report's plots, as SVG text to be put into a page.

In: results. Out: `Figure`s. Forbidden: files; numbers that are not in the results.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from torchvk_compile.bench.report.style import COLOURS, OTHER_COLOUR, colour, label, seconds
from torchvk_compile.bench.results import Results, ratio
from torchvk_compile.bench.summaries import summary
from torchvk_compile.bench.verdicts import bandwidth
from torchvk_compile.cards import Card

_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E7EB",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.edgecolor": "#9CA3AF",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}
_WIDTH, _HEIGHT = 7.2, 3.6
_LONGEST_BAR = 30
"""Times the shortest, of bars in one plot; farther apart the axis is logarithmic."""
_ROOF: dict[str, Any] = {"color": OTHER_COLOUR, "linestyle": "--", "linewidth": 1.2}


@dataclass(frozen=True)
class Figure:
    """A plot with the sentence that says what it shows."""

    caption: str
    svg: str


def draw(caption: str, plot: Callable[[Axes], None], *, height: float = _HEIGHT) -> Figure:
    """A figure with one set of axes, filled by `plot`."""
    # Identifiers of shapes must differ between the plots of one page; the salt decides them.
    with pyplot.rc_context({**_SETTINGS, "svg.hashsalt": caption}):
        figure, axes = pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")
        try:
            plot(axes)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
        finally:
            pyplot.close(figure)
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    # The page scales it: only the view box counts. Metadata links to a vocabulary on the network.
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"([^>]*?) width="[^"]*"', r"\1\2", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"([^>]*?) height="[^"]*"', r"\1\2", svg)
    return Figure(caption, svg.replace("<svg", '<svg role="img"', 1))


def bandwidth_sweep(results: Results) -> Figure | None:
    """E1: bytes per second over the size, with the copy's speed as the roof."""
    timed = results.timed("E1", workload="add")
    if not timed:
        return None
    copies = [
        (case["n"], bandwidth(ways["vk-eager"]))
        for case, ways in results.timed("E1", workload="copy")
        if "vk-eager" in ways
    ]

    def plot(axes: Axes) -> None:
        for name in COLOURS:
            points = [(c["n"], bandwidth(w[name]) / 1e9) for c, w in timed if name in w]
            if points:
                axes.plot(*zip(*sorted(points)), "o-", color=colour(name), label=label(name))
        if copies:
            sizes, speeds = zip(*sorted(copies))
            roof = [speed / 1e9 for speed in speeds]
            axes.plot(sizes, roof, label="copy on the Vulkan device", **_ROOF)
        _logarithmic(axes, "elements", "GB/s")
        _legend(axes)

    return draw("E1: memory moved per second by z = x + y, and by a copy as the roof.", plot)


def product_sweep(results: Results, dtype: str) -> Figure | None:
    """E2: operations per second over the size, operands as stored."""
    timed = results.timed("E2", dtype=dtype, layout="NN")
    if not timed:
        return None

    def plot(axes: Axes) -> None:
        for name in COLOURS:
            points = [
                (c["n"], w[name]["facts"]["operations"] / summary(w[name]["seconds"]).median / 1e9)
                for c, w in timed
                if name in w
            ]
            if points:
                axes.plot(*zip(*sorted(points)), "o-", color=colour(name), label=label(name))
        _logarithmic(axes, "n", "GFLOP/s")
        axes.set_xticks(
            [c["n"] for c, _ in timed], labels=[str(c["n"]) for c, _ in timed], minor=False
        )
        axes.minorticks_off()
        _legend(axes)

    return draw(f"E2: operations per second of n x n products, {dtype}, layout NN.", plot)


def step_bars(results: Results, experiment: str) -> Figure | None:
    """E3, E4: time of a training step in every way."""
    timed = results.timed(experiment, workload="train")
    if not timed:
        return None
    ways = {name: timed[0][1][name] for name in COLOURS if name in timed[0][1]}

    def plot(axes: Axes) -> None:
        found = [summary(way["seconds"]) for way in ways.values()]
        middle = [1e3 * s.median for s in found]
        lower = [1e3 * (s.median - s.lower) for s in found]
        upper = [1e3 * (s.upper - s.median) for s in found]
        upper_ends = [1e3 * s.upper for s in found]
        names = [label(name) for name in ways]
        colours = [colour(name) for name in ways]
        unit = "milliseconds per step"
        if max(middle) <= _LONGEST_BAR * min(middle):
            axes.barh(names, middle, xerr=[lower, upper], color=colours, height=0.6, capsize=3)
            axes.set_xlim(0, 1.15 * max(upper_ends))
            axes.set_xlabel(unit)
        else:
            # On a logarithmic axis the length of a bar would mean nothing.
            axes.errorbar(middle, names, xerr=[lower, upper], fmt="none", ecolor="black", capsize=3)
            axes.scatter(middle, names, color=colours, s=60, zorder=3)
            axes.set_xscale("log")
            axes.set_xlim(right=4 * max(upper_ends))
            axes.set_ylim(-0.6, len(names) - 0.4)
            _plain_ticks(axes.xaxis)
            axes.set_xlabel(f"{unit} (logarithmic)")
        for place, (end, value) in enumerate(zip(upper_ends, middle)):
            axes.annotate(
                seconds(value / 1e3),
                (end, place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
            )
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)

    caption = f"{experiment}: a training step; the error bars span the middle half of the samples."
    return draw(caption, plot, height=0.9 + 0.42 * len(ways))


def accuracy_curves(results: Results, experiment: str) -> Figure | None:
    """E3, E4: test accuracy over the seconds of training, compilation included."""
    trainings = results.trainings(experiment)
    if not trainings:
        return None

    def plot(axes: Axes) -> None:
        for name, training in trainings.items():
            spent = [epoch["seconds"] for epoch in training["epochs"]]
            accuracy = [epoch["accuracy"] for epoch in training["epochs"]]
            axes.plot(spent, accuracy, "o-", color=colour(name), label=label(name))
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
        axes.set_xlabel("seconds of training, compilation included (logarithmic)")
        axes.set_ylabel("test accuracy")
        _legend(axes)

    return draw(f"{experiment}: test accuracy after every epoch, over training time.", plot)


def limit_bars(results: Results) -> Figure | None:
    """E5: the least limit that works, beside the peak without one."""
    records = [record for record in results.of("E5") if "attempts" in record]
    if not records:
        return None

    def plot(axes: Axes) -> None:
        names = [_memory_label(record["case"]) for record in records]
        peaks = [record["unlimited"]["reserved_peak_bytes"] / 2**20 for record in records]
        least = [record["least_mib"] or 0 for record in records]
        places = range(len(records))
        axes.barh(
            [p - 0.2 for p in places],
            peaks,
            height=0.36,
            color="#9CA3AF",
            label="peak without a limit",
        )
        bars = axes.barh(
            [p + 0.2 for p in places],
            least,
            height=0.36,
            color=colour("vk-compiled"),
            label="least that works",
        )
        axes.bar_label(bars, [f"{value} MiB" for value in least], padding=4)
        axes.set_yticks(list(places), names)
        axes.set_xlabel("MiB")
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        _legend(axes)

    caption = "E5: video memory a training step reserves, and the least limit under which it runs."
    return draw(caption, plot, height=1.2 + 0.6 * len(records))


def memory_curve(results: Results) -> Figure | None:
    """E5: memory after each part of three steps."""
    records = [record for record in results.of("E5") if record.get("timeline")]
    if not records:
        return None

    def plot(axes: Axes) -> None:
        for record, shade in zip(records, ["#D55E00", "#0072B2", "#009E73", "#CC79A7"]):
            points = [point["allocated_bytes"] / 2**20 for point in record["timeline"]]
            axes.step(
                range(len(points)),
                points,
                where="mid",
                color=shade,
                label=_memory_label(record["case"]),
            )
        phases = [point["phase"] for point in records[0]["timeline"]]
        axes.set_xticks(range(len(phases)), phases, rotation=45, ha="right")
        axes.set_ylabel("MiB that tensors occupy")
        axes.set_ylim(bottom=0)
        _legend(axes)

    return draw("E5: memory over time, looked at after each part of three training steps.", plot)


def _memory_label(case: Mapping[str, Any]) -> str:
    return f"{case['workload']}, {'recomputed' if case['recompute'] else 'plain'}"


def ablation_bars(results: Results) -> list[Figure]:
    """E6: time without each mechanism over that of the full system, per workload."""
    figures = []
    for case, ways in results.timed("E6", workload="train"):
        ablations = [name for name in ways if name.startswith("without ")]
        found = [(n.removeprefix("without "), ratio(ways, n, "full")) for n in ablations]
        rows = [(name, r) for name, r in found if r is not None]
        if rows:
            figures.append(_ablation(case["name"], rows))
    return figures


def roofline(prediction: Mapping[str, Any], card: Card) -> Figure:
    """Every distinct kernel of the predicted experiments under the card's roofline."""
    points = sorted(
        {
            (flops / moved, flops / spent / 1e9)
            for case in prediction["cases"]
            for moved, flops, spent in case.get("kernels", ())
            if moved and flops
        }
    )
    intensities = [intensity for intensity, _ in points]
    ridge = card.flops / card.bytes_per_second
    low, high = min([*intensities, ridge / 10]) / 2, max([*intensities, ridge * 10]) * 2

    def plot(axes: Axes) -> None:
        peak = card.flops / 1e9
        axes.plot([low, ridge, high], [peak * low / ridge, peak, peak], color=OTHER_COLOUR)
        speeds = [speed for _, speed in points]
        axes.scatter(
            intensities, speeds, s=14, alpha=0.5, color=colour("vk-compiled"), linewidths=0
        )
        _logarithmic(axes, "operations per byte", "GFLOP/s, launch included")

    caption = (
        f"Prediction: every distinct kernel of the experiments below the roofline of the {card.name} "
        f"({card.bytes_per_second / 1e9:.0f} GB/s, {card.flops / 1e12:.1f} TFLOP/s). Those far below are small."
    )
    return draw(caption, plot)


def _ablation(workload: str, rows: Sequence[tuple[str, Any]]) -> Figure:
    rows = sorted(rows, key=lambda row: -row[1].median)

    def plot(axes: Axes) -> None:
        names = [name.replace("_", " ") for name, _ in rows]
        middle = [r.median for _, r in rows]
        errors = [[r.median - r.lower for _, r in rows], [r.upper - r.median for _, r in rows]]
        colours = [COLOURS["cpu-eager"] if r.median >= 1 else OTHER_COLOUR for _, r in rows]
        widths = [value - 1 for value in middle]
        bars = axes.barh(names, widths, left=1, xerr=errors, color=colours, height=0.6, capsize=3)
        axes.bar_label(bars, [f"{value:.2f}x" for value in middle], padding=8)
        axes.axvline(1, color="#374151", linewidth=1)
        axes.set_xlabel("time without it / time of the full system")
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)

    caption = (
        f"E6: {workload}, one mechanism off at a time, with 95 % intervals; right of 1 it pays."
    )
    return draw(caption, plot, height=1.0 + 0.36 * len(rows))


def _legend(axes: Axes) -> None:
    """Above the plot, where it covers nothing."""
    columns = min(len(axes.get_legend_handles_labels()[1]), 4)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=max(columns, 1))


def _plain_ticks(axis: Axis) -> None:
    """Few ticks with plain numbers on a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _logarithmic(axes: Axes, x: str, y: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
