"""The charts of a comparison, in the order of its page: metric, loss, paired differences and loss scale."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator

from reports.pages import intervals
from reports.pages.drawing import RC, finish, new_axes
from reports.pages.formats import count_of
from reports.pages.precisions import appearance
from reports.pages.style import Chart
from reports.records import layout
from reports.records.comparison import Comparison
from reports.records.metrics import LOSS, History, read_history

SCALE = "amp/scale"
MOST_MARKERS = 40
BAND = "Line: mean over the finished seeds; band: lowest to highest."
Histories = Mapping[str, Sequence[History]]  # of the finished runs, by precision


def draw(folder: Path, comparison: Comparison) -> list[Chart]:
    """The charts for which there are records; `folder` has the runs."""
    finished = {name: [run for run in comparison.runs_of(name) if run.finished] for name in comparison.precisions}
    histories = {
        name: [read_history(folder / run.name / layout.METRICS) for run in runs] for name, runs in finished.items()
    }
    charts = [_metric(comparison, histories), _loss(histories), intervals.paired_differences(comparison), _scale(histories)]
    return [chart for chart in charts if chart is not None]


def _metric(comparison: Comparison, histories: Histories) -> Chart | None:
    metric = comparison.metric
    if metric is None:
        return None
    label = f"evaluation {metric.label}" + (f" [{metric.unit}]" if metric.unit else "")
    caption = f"Over the whole evaluation set. {BAND}"
    base = 10 if metric.width is None else 0
    return _curves(histories, "metric", metric.key, f"Evaluation {metric.label}", label, caption, metric.scale, base)


def _loss(histories: Histories) -> Chart | None:
    caption = f"Mean loss since the point before. {BAND}"
    for precision, runs in histories.items():
        if gaps := sum(run.nonfinite_loss_steps() for run in runs):
            caption += f" {precision}: NaN or infinite in {count_of(gaps, 'step')}."
    return _curves(histories, "loss", LOSS, "Training loss", "training loss", caption, base=10)


def _scale(histories: Histories) -> Chart | None:
    caption = f"It halves where steps are skipped. {BAND}"
    return _curves(histories, "scale", SCALE, "Loss scale", "loss scale", caption, base=2)


@matplotlib.rc_context(RC)
def _curves(
    histories: Histories, name: str, key: str, title: str, label: str, caption: str, scale: float = 1.0, base: int = 0
) -> Chart | None:
    """`scale` times the figure `key` against step; None where no run logged it.

    Only steps that all runs of a precision logged have a point; values that are not finite leave a gap. With `base`
    the axis is logarithmic where the values differ by more than that factor.
    """
    axes = new_axes(3)
    for precision, runs in histories.items():
        series = [values for run in runs if (values := run.series(key))]
        steps = sorted(set.intersection(*map(set, series))) if series else []
        values = scale * np.array([[run[step] for step in steps] for run in series])
        values[~np.isfinite(values)] = np.nan
        if not np.isfinite(values).any():
            continue
        style = appearance(precision)
        marker = style.marker if len(steps) <= MOST_MARKERS else ""
        (line,) = axes.plot(
            steps, values.mean(axis=0), color=style.colour, label=style.label, marker=marker, markersize=4
        )
        line.set_dashes(style.dashes)
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=style.colour, alpha=0.16, linewidth=0)
    if not axes.lines:
        return None
    low, high = axes.dataLim.intervaly
    if base and low > 0 and high >= base * low:
        axes.set_yscale("log", base=base)
        axes.yaxis.set_major_locator(LogLocator(base, subs=(1, 2, 5) if base == 10 else (1,), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel=label)
    return finish(axes, name, f"{title} against step", caption)
