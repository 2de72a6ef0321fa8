"""Values with their intervals, one line each: the pairs of one comparison, and all comparisons beside each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from scipy import stats

from reports.analysis.statistics import SIGNIFICANCE
from reports.pages.precisions import appearance, in_order
from reports.pages.style import RULE, STYLE, Chart, colour_of, figure_of, finish, mark_of
from reports.records.comparison import Comparison, Interval, Row
from reports.records.layout import BASELINE

WHISKERS = "Marks: mean. Thin: 95% interval. Thick: 90% interval; EQUIVALENT is where that lies within the shading."


@dataclass(frozen=True)
class Mark:
    """A value of a precision, with its interval as a thin line and the one that decides equivalence as a thick one."""

    precision: str
    value: float
    interval: tuple[float, float] | None = None
    decisive: tuple[float, float] | None = None
    hollow: bool = False

    @classmethod
    def of(
        cls, row: Row, estimate: Interval, scale: float = 1.0, hollow: bool = False, decided: bool = False
    ) -> "Mark":
        """The estimate of a row, times `scale`."""
        low, high = sorted((scale * estimate.low, scale * estimate.high))
        thick = sorted(scale * end for end in decisive(row)) if decided else None
        return cls(row.precision, scale * estimate.value, (low, high), thick and (thick[0], thick[1]), hollow)


Line = tuple[str, list[Mark]]


def pairs(comparison: Comparison) -> Chart | None:
    """The paired difference vs FP32 of every seed, and their mean with its intervals; None for single runs."""
    rows, metric = [row for row in comparison.rows if row.interval and row.margin], comparison.metric
    if not rows or metric is None:
        return None
    figure, axes = _lines([appearance(row.precision).label for row in rows], 0.9 + 0.45 * len(rows))
    baseline = {run.seed: run.value for run in comparison.runs_of(BASELINE) if run.finished}
    for place, row in enumerate(rows):
        runs = [run for run in comparison.runs_of(row.precision) if run.finished]
        values = [(run.value, baseline.get(run.seed)) for run in runs]
        strokes = [metric.scale * (own - other) for own, other in values if own is not None and other is not None]
        axes.plot(strokes, [place + 0.22] * len(strokes), "|", color=colour_of(row.precision), markersize=7)
        mark(axes, Mark.of_difference(row, metric.scale), place)
    margin = metric.scale * (rows[0].margin or 0)
    axes.axvspan(-margin, margin, color=RULE, alpha=0.45, linewidth=0)
    axes.axvline(0, color=colour_of(BASELINE), linewidth=1)
    unit = f" [{metric.difference_unit}]" if metric.difference_unit else ""
    axes.set_xlabel(f"{metric.label} minus that of FP32{unit}")
    axes.margins(x=0.1)
    text = f"Strokes: one seed each. {WHISKERS} Shaded: differences within the margin. {_wider([comparison])}"
    return finish(figure, "pairs", "Paired differences vs FP32", text)


def overview(comparisons: Sequence[Comparison], wide: bool = False) -> list[Chart]:
    """Speed-ups, differences in quality and activation memory of all comparisons; `wide` is for a page of its own."""
    with matplotlib.rc_context(STYLE):
        charts = [_speedups(comparisons, wide), _qualities(comparisons, wide), _memory(comparisons, wide)]
    return [chart for chart in charts if chart is not None]


def decisive(row: Row) -> tuple[float, float]:
    """The ends of the interval that decides equivalence, from those of the wider one.

    Both are the mean plus and minus a quantile of Student's t times the same error: of 90% and 95% for one look,
    narrower tails for more, as in `statistics.judge`.
    """
    assert row.interval
    tail, freedom = SIGNIFICANCE / row.looks, row.pairs - 1
    share = float(stats.t.ppf(1 - tail, freedom) / stats.t.ppf(1 - tail / 2, freedom))
    reach = share * (row.interval.high - row.interval.low) / 2
    return row.interval.value - reach, row.interval.value + reach


def mark(axes: Axes, one: Mark | None, place: float) -> None:
    """Draw a mark, where there is one, on the line at `place`."""
    if one is None:
        return
    low, high = one.interval or (one.value, one.value)
    reach = [[one.value - low], [high - one.value]] if one.interval else None
    axes.errorbar(one.value, place, xerr=reach, capsize=2.5, linewidth=1, **mark_of(one.precision, one.hollow))
    if one.decisive:
        axes.hlines(place, *one.decisive, color=colour_of(one.precision), linewidth=3)


def _speedups(comparisons: Sequence[Comparison], wide: bool) -> Chart | None:
    lines = _sorted(
        comparisons,
        Mark.of_speedup,
        # Speed that is not the precision's own does not decide where an experiment stands.
        lambda one: (not one.hollow, one.value),
    )
    text = "Samples per second over those of FP32: median ratio of the blocks of a round and its 95% interval."
    rows = [row for comparison in comparisons for row in comparison.mixed_rows if row.emulated and row.speedup]
    if hollow := sorted({f"{row.precision}: {row.arithmetic}" for row in rows}):
        text += f" Hollow: emulated ({'; '.join(hollow)}), which says nothing about the speed of hardware made for it."
    return _forest("speedups", "How much faster", "speed-up over FP32 [x]", text, lines, 1, wide)


def _qualities(comparisons: Sequence[Comparison], wide: bool) -> Chart | None:
    def quality(row: Row) -> Mark | None:
        if row.metric is None or not row.margin:
            return None
        return Mark.of_difference(row, (1 if row.metric.higher_is_better else -1) / row.margin)

    lines = _sorted(comparisons, quality, lambda one: (True, one.value))
    text = (
        "Metric against FP32's over paired seeds, in units of each experiment's margin, better to the right. "
        f"{WHISKERS} Shaded: within the margin. Experiments of one seed have no interval and are left out. "
        f"{_wider(comparisons)}"
    )
    return _forest("qualities", "Whether it costs accuracy", "better than FP32 by [margins]", text, lines, 0, wide)


def _memory(comparisons: Sequence[Comparison], wide: bool) -> Chart | None:
    lines = _sorted(
        comparisons,
        lambda row: Mark(row.precision, row.saved_ratio) if row.saved_ratio else None,
        lambda one: (True, -one.value),
    )
    text = "Bytes that autograd saves for the backward pass over those of FP32: exact, and the same on every machine."
    label = "activation memory over FP32's [x, log scale]"
    return _forest("memory", "How much activation memory", label, text, lines, 1, wide)


def _sorted(
    comparisons: Sequence[Comparison],
    mark_of_row: Callable[[Row], Mark | None],
    worth: Callable[[Mark], tuple[bool, float]],
) -> list[Line]:
    """Each comparison with its marks, the one with the mark of most `worth` first; none without marks."""
    lines = [
        (comparison.experiment, [one for row in comparison.mixed_rows if (one := mark_of_row(row))])
        for comparison in comparisons
    ]
    return sorted((line for line in lines if line[1]), key=lambda line: max(map(worth, line[1])), reverse=True)


def _forest(
    name: str, title: str, label: str, caption: str, lines: Sequence[Line], reference: float, wide: bool
) -> Chart | None:
    """A line a comparison, FP32 at `reference`; the names stand beside the lines where `wide`, else above the marks."""
    if not lines:
        return None
    names = [experiment for experiment, _ in lines]
    figure, axes = _lines(names, 0.9 + (0.22 if wide else 0.38) * len(names), inside=not wide, wide=wide)
    top, spacing = (-0.15, 0.3) if wide else (0.08, 0.22)
    for place, (_, marks) in enumerate(lines):
        for offset, one in enumerate(marks):
            mark(axes, one, place + top + spacing * offset)
        # It leaves out the names, which it would strike through.
        axes.vlines(
            reference,
            place + (-0.5 if wide else -0.06),
            place + 0.5,
            color=colour_of(BASELINE),
            linewidth=1,
            zorder=1.5,
        )
    if name == "qualities":
        axes.axvspan(-1, 1, color=RULE, alpha=0.45, linewidth=0)
    if name == "memory":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator([0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for precision in in_order(one.precision for _, marks in lines for one in marks):
        axes.plot([], [], linestyle="none", label=appearance(precision).label, **mark_of(precision))
    axes.set_xlabel(label)
    return finish(figure, name, title, caption)


def _lines(names: Sequence[str], height: float, inside: bool = False, wide: bool = False) -> tuple[Figure, Axes]:
    """Axes with a line for each name, from top to bottom; the names beside them, or `inside` above their marks."""
    figure, (axes,) = figure_of(height, width=8 if wide else 4.6)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [] if inside else names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    for place, name in enumerate(names if inside or wide else ()):
        axes.axhline(place - 0.5, color=RULE, linewidth=0.6)
        if inside:
            axes.text(0, place - 0.25, f" {name}", transform=axes.get_yaxis_transform(), va="center")
    return figure, axes


def _wider(comparisons: Sequence[Comparison]) -> str:
    names = ", ".join(comparison.experiment for comparison in comparisons if comparison.looks > 1)
    return f"Both intervals are wider where seeds were added while a verdict was open: {names}." if names else ""
