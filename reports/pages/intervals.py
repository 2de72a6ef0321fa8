"""Values with their intervals, one line each: the pairs of one comparison, and all comparisons beside each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy import stats

from reports.analysis.statistics import SIGNIFICANCE
from reports.pages.drawing import RC, colour_of, figure_of, finish, list_lines, mark_of
from reports.pages.precisions import appearance, in_order
from reports.pages.style import RULE, Chart
from reports.records.comparison import Comparison, Row
from reports.records.layout import BASELINE

WHISKERS = "Marks: mean. Thin: 95% interval. Thick: 90% interval; EQUIVALENT is where that lies within the shading."
WIDER = " Both intervals are wider where seeds were added while a verdict was open."
RATIOS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Mark:
    """A value of a precision, its interval drawn thin and the one that decides equivalence thick."""

    precision: str
    value: float
    interval: tuple[float, float] | None = None
    decisive: tuple[float, float] | None = None
    hollow: bool = False

    @classmethod
    def of_speedup(cls, row: Row) -> "Mark | None":
        """Its speed-up; hollow where it is not the precision's own."""
        speed = row.speedup
        return cls(row.precision, speed.value, (speed.low, speed.high), hollow=row.emulated) if speed else None

    @classmethod
    def of_difference(cls, row: Row, scale: float) -> "Mark | None":
        """Its difference times `scale`, which may be negative."""
        if row.interval is None:
            return None
        low, high = sorted((scale * row.interval.low, scale * row.interval.high))
        inner_low, inner_high = sorted(scale * end for end in decisive(row))
        return cls(row.precision, scale * row.interval.value, (low, high), (inner_low, inner_high))

    @classmethod
    def of_quality(cls, row: Row) -> "Mark | None":
        """Its difference in margins, better to the right."""
        if row.metric is None or not row.margin:
            return None
        return cls.of_difference(row, (1 if row.metric.higher_is_better else -1) / row.margin)

    @classmethod
    def of_memory(cls, row: Row) -> "Mark | None":
        """What it saves for backward over FP32."""
        return cls(row.precision, row.saved_ratio) if row.saved_ratio else None


def pairs(comparison: Comparison) -> Chart | None:
    """The paired difference vs FP32 of every seed, and their mean with its intervals; None for single runs."""
    rows, metric = [row for row in comparison.rows if row.interval and row.margin], comparison.metric
    if not rows or metric is None:
        return None
    figure, (axes,) = figure_of(0.9 + 0.45 * len(rows))
    list_lines(axes, [appearance(row.precision).label for row in rows])
    axes.grid(visible=False, axis="y")
    baseline = {run.seed: run.value for run in comparison.runs_of(BASELINE) if run.finished}
    for place, row in enumerate(rows):
        values = [(run.value, baseline.get(run.seed)) for run in comparison.runs_of(row.precision) if run.finished]
        strokes = [metric.scale * (own - other) for own, other in values if own is not None and other is not None]
        axes.plot(strokes, [place + 0.22] * len(strokes), "|", color=colour_of(row.precision), markersize=7)
        draw_mark(axes, Mark.of_difference(row, metric.scale), place)
    margin = metric.scale * (rows[0].margin or 0)
    axes.axvspan(-margin, margin, color=RULE, alpha=0.45, linewidth=0)
    axes.axvline(0, color=colour_of(BASELINE), linewidth=1)
    unit = f" [{metric.difference_unit}]" if metric.difference_unit else ""
    axes.set_xlabel(f"{metric.label} minus that of FP32{unit}")
    axes.margins(x=0.1)
    text = f"Strokes: one seed each. {WHISKERS} Shaded: differences within the margin."
    return finish(figure, "pairs", "Paired differences vs FP32", text + (WIDER if comparison.looks > 1 else ""))


def overview(comparisons: Sequence[Comparison]) -> list[Chart]:
    """Speed-ups, differences in quality and activation memory of all comparisons."""
    rows = [row for comparison in comparisons for row in comparison.mixed_rows]
    speeds = "Samples per second over those of FP32: median ratio of the blocks of a round and its 95% interval."
    if emulated := sorted({f"{row.precision}: {row.arithmetic}" for row in rows if row.emulated}):
        speeds += f" Hollow: emulated ({'; '.join(emulated)}), which says nothing about hardware made for it."
    qualities = "Metric against FP32's over paired seeds, in units of each experiment's margin, better to the right. "
    qualities += f"{WHISKERS} Shaded: within the margin. Experiments of one seed have no interval and are left out."
    qualities += WIDER if any(row.looks > 1 for row in rows) else ""
    memory = "Bytes that autograd saves for the backward pass over those of FP32: exact, the same on every machine."
    with matplotlib.rc_context(RC):
        forests = [
            # Speed that is not the precision's own does not decide where an experiment stands.
            _Forest("speedups", "How much faster", "speed-up over FP32 [x]", speeds, 1, Mark.of_speedup),
            _Forest(
                "qualities", "Whether it costs accuracy", "better than FP32 by [margins]", qualities, 0, Mark.of_quality
            ),
            _Forest(
                "memory", "How much activation memory", "activation memory over FP32's [x]", memory, 1, Mark.of_memory
            ),
        ]
        charts = [forest.draw(comparisons) for forest in forests]
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


def draw_mark(axes: Axes, mark: Mark | None, place: float) -> None:
    """Draw `mark`, where there is one, on the line at `place`."""
    if mark is None:
        return
    reach = [[mark.value - mark.interval[0]], [mark.interval[1] - mark.value]] if mark.interval else None
    axes.errorbar(mark.value, place, xerr=reach, capsize=2.5, linewidth=1, **mark_of(mark.precision, mark.hollow))
    if mark.decisive:
        axes.hlines(place, *mark.decisive, color=colour_of(mark.precision), linewidth=3)


@dataclass(frozen=True)
class _Forest:
    """A line for each comparison, its mixed precisions on it, and FP32 at `reference`."""

    name: str
    title: str
    label: str
    caption: str
    reference: float
    mark: Callable[[Row], Mark | None]

    def draw(self, comparisons: Sequence[Comparison]) -> Chart | None:
        """The comparison of the best mark first; None without marks."""
        every = [(one.experiment, list(filter(None, map(self.mark, one.mixed_rows)))) for one in comparisons]
        lines = sorted(
            (line for line in every if line[1]), key=lambda line: max(map(self._worth, line[1])), reverse=True
        )
        if not lines:
            return None
        figure, (axes,) = figure_of(0.9 + 0.22 * len(lines), width=8)
        list_lines(axes, [name for name, _ in lines])
        axes.grid(visible=False, axis="y")
        axes.axvline(self.reference, color=colour_of(BASELINE), linewidth=1, zorder=1.5)
        for place, (_, marks) in enumerate(lines):
            axes.axhline(place - 0.5, color=RULE, linewidth=0.6)
            for offset, mark in enumerate(marks):
                draw_mark(axes, mark, place - 0.15 + 0.3 * offset)
        if self.mark == Mark.of_quality:
            axes.axvspan(-1, 1, color=RULE, alpha=0.45, linewidth=0)
        if self.mark == Mark.of_memory:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(RATIOS))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for precision in in_order(mark.precision for _, marks in lines for mark in marks):
            axes.plot([], [], linestyle="none", label=appearance(precision).label, **mark_of(precision))
        axes.set_xlabel(self.label)
        return finish(figure, self.name, self.title, self.caption)

    def _worth(self, mark: Mark) -> tuple[bool, float]:
        return not mark.hollow, -mark.value if self.mark == Mark.of_memory else mark.value
