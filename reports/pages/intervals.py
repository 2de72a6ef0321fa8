"""Values with their intervals, one line each: the differences of one comparison, and all comparisons together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reports.analysis.statistics import narrow_over_wide
from reports.pages.drawing import RC, finish, new_axes
from reports.pages.precisions import GREY, appearance, in_order
from reports.pages.style import Chart
from reports.records.comparison import Comparison, Row

WHISKERS = (
    "Thin: 95% interval. Thick: 90% interval, EQUIVALENT where it lies within the shaded margin. Both are wider where "
    "seeds were added while a verdict was open."
)
SPEED = (
    "Ratio of samples per second and its 95% interval over process starts; without one, of one start alone. Hollow: "
    "emulated, not as on hardware for it."
)
QUALITY = f"Mean paired difference in margins, better to the right. {WHISKERS} Single runs are left out."
MEMORY = (
    "Bytes that autograd saves for the backward pass over those of FP32, counted with the autocast list of the device: "
    "CUDA's keeps more operations in FP32 than a CPU's."
)
RATIOS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Mark:
    """A value of a precision, hollow where it is not its own; an interval drawn thin, and a thick one within it."""

    precision: str
    value: float
    thin: tuple[float, float] | None = None
    thick: tuple[float, float] | None = None
    hollow: bool = False


Line = tuple[str, list[Mark]]


def speedup(row: Row) -> Mark | None:
    """How many times as fast as FP32 it is."""
    if row.speedup is None:
        return None
    interval = row.speedup.interval
    thin = (interval.low, interval.high) if interval else None
    return Mark(row.precision, row.speedup.value, thin, hollow=row.emulated)


def quality(row: Row) -> Mark | None:
    """Its difference vs FP32 in margins, better to the right."""
    if row.metric is None or not row.margin:
        return None
    return difference(row, (1 if row.metric.higher_is_better else -1) / row.margin)


def memory(row: Row) -> Mark | None:
    """What it saves for backward over FP32."""
    return Mark(row.precision, row.saved_ratio) if row.saved_ratio else None


def difference(row: Row, scale: float) -> Mark | None:
    """Its mean difference vs FP32, times `scale`.

    Both intervals are the mean plus and minus a quantile of Student's t times the same error, as in `statistics.judge`.
    """
    if row.interval is None:
        return None
    value, wide = scale * row.interval.value, abs(scale) * (row.interval.high - row.interval.low) / 2
    narrow = wide * narrow_over_wide(row.pairs, row.looks)
    return Mark(row.precision, value, (value - wide, value + wide), (value - narrow, value + narrow))


def paired_differences(comparison: Comparison) -> Chart | None:
    """The mean paired difference vs FP32 of each precision, with its intervals; None for single runs."""
    metric, rows = comparison.metric, [row for row in comparison.mixed_rows if row.verdict]
    if metric is None or not rows:
        return None
    marks = [(row, mark) for row in rows if (mark := difference(row, metric.scale))]
    lines = [(f"{appearance(row.precision).label}: {row.verdict}", [mark]) for row, mark in marks]
    label = f"{metric.label} minus FP32's" + (f" [{metric.difference_unit}]" if metric.difference_unit else "")
    margin = metric.scale * (rows[0].margin or 0)
    return forest("pairs", "Paired differences vs FP32", label, WHISKERS, lines, margin=margin)


def overview(comparisons: Sequence[Comparison]) -> list[Chart]:
    """Speed-ups, differences in quality and activation memory of all comparisons."""
    speeds, qualities, memories = (_lines(comparisons, mark) for mark in (speedup, quality, memory))
    charts = [
        forest("speedups", "How much faster", "speed-up over FP32 [x]", SPEED, speeds, ratios=True),
        forest("qualities", "Whether it costs accuracy", "better than FP32 by [margins]", QUALITY, qualities, margin=1),
        forest("memory", "How much activation memory", "over FP32's [x]", MEMORY, memories[::-1], ratios=True),
    ]
    return [chart for chart in charts if chart is not None]


def _lines(comparisons: Sequence[Comparison], mark: Callable[[Row], Mark | None]) -> list[Line]:
    """The marks of each comparison that has any, the highest first; what is hollow does not decide."""
    every = [(one.experiment, list(filter(None, map(mark, one.mixed_rows)))) for one in comparisons]
    lines = [line for line in every if line[1]]
    return sorted(lines, key=lambda line: max((not one.hollow, one.value) for one in line[1]), reverse=True)


@matplotlib.rc_context(RC)
def forest(
    name: str, title: str, label: str, caption: str, lines: Sequence[Line], margin: float = 0, ratios: bool = False
) -> Chart | None:
    """The marks of each line, its text above them: names are too long for beside them in 400 pixels.

    Against FP32, at 0 with its `margin` shaded, or at 1 of `ratios`; None without lines.
    """
    if not lines:
        return None
    axes = new_axes(1 + 0.36 * len(lines))
    axes.grid(visible=False, axis="y")
    axes.axvline(1 if ratios else 0, color=GREY, linewidth=1)
    if ratios:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(RATIOS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if margin:
        axes.axvspan(-margin, margin, color=GREY, alpha=0.2, linewidth=0)
    for precision in in_order(mark.precision for _, marks in lines for mark in marks):
        style = appearance(precision)
        axes.plot([], [], style.marker, color=style.colour, label=style.label)
    for place, (text, marks) in enumerate(lines):
        for offset, mark in enumerate(marks):
            style, height = appearance(mark.precision), place + 0.2 * (offset - (len(marks) - 1) / 2)
            for ends, width in ((mark.thin, 1), (mark.thick, 3)):
                axes.plot(ends or (), [height, height] if ends else (), color=style.colour, linewidth=width)
            face = "none" if mark.hollow else style.colour
            axes.plot(mark.value, height, style.marker, color=style.colour, markerfacecolor=face, markersize=4.5)
        axes.annotate(text, (0, place - 0.22), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    axes.set_yticks([])
    axes.set_ylim(len(lines) - 0.6, -0.8)
    axes.set_xlabel(label)
    return finish(axes, name, title, caption)
