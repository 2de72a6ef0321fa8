"""The charts of a comparison, in the order of its page: metric, loss, paired differences and loss scale."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator

from reports.pages.drawing import RC, finish, new_axes
from reports.pages.intervals import paired_differences
from reports.pages.precisions import appearance
from reports.pages.style import Chart
from reports.records import layout
from reports.records.comparison import Comparison
from reports.records.metrics import LOSS, History, read_history

SCALE = "amp/scale"
MOST_MARKERS = 12
BAND = "Line: mean over the finished seeds; band: lowest to highest."
Histories = Mapping[str, Sequence[History]]  # of the finished runs, by precision


def draw(folder: Path, comparison: Comparison) -> list[Chart]:
    """The charts for which there are records; `folder` has the runs."""
    histories: dict[str, list[History]] = {precision: [] for precision in comparison.precisions}
    for run in comparison.runs:
        if run.finished:
            histories[run.precision].append(read_history(folder / run.name / layout.METRICS))
    charts = []
    if metric := comparison.metric:
        label = f"evaluation {metric.label}" + (f" [{metric.unit}]" if metric.unit else "")
        text, base = f"Over the whole evaluation set. {BAND}", None if metric.width else 10
        charts.append(_curves(histories, metric.key, "metric", label, text, base, metric.scale))
    text = f"Mean loss since the point before. {BAND}"
    gaps = {name: sum(run.summary.nonfinite_loss_steps or 0 for run in comparison.runs_of(name)) for name in histories}
    text += "".join(f" Steps of {name} that are NaN or infinite: {count}." for name, count in gaps.items() if count)
    charts += [_curves(histories, LOSS, "loss", "training loss", text, 10), paired_differences(comparison)]
    charts.append(_curves(histories, SCALE, "scale", "loss scale", f"It falls where steps are skipped. {BAND}", 2))
    return [chart for chart in charts if chart is not None]


@matplotlib.rc_context(RC)
def _curves(
    histories: Histories, key: str, name: str, label: str, caption: str, base: int | None, scale: float = 1
) -> Chart | None:
    """`scale` times the figure `key` against step; None where no run logged it.

    A point needs all runs of its precision to have logged the step; a value that is not finite leaves a gap. With a
    `base` the axis is logarithmic where values are so many times others.
    """
    axes = new_axes(2.6)
    for precision, runs in histories.items():
        series = [logged for run in runs if (logged := run.series(key))]
        steps = sorted(set.intersection(*map(set, series))) if series else []
        values = scale * np.array([[logged[step] for step in steps] for logged in series])
        values[~np.isfinite(values)] = np.nan
        if np.isfinite(values).any():
            style = appearance(precision)
            marker = style.marker if len(steps) <= MOST_MARKERS else ""
            line: dict[str, Any] = {"color": style.colour, "dashes": style.dashes, "marker": marker, "markersize": 4}
            mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
            axes.plot(steps, mean, label=style.label, **line)
            axes.fill_between(steps, low, high, color=style.colour, alpha=0.16, linewidth=0)
    if not axes.lines:
        return None
    lowest, highest = axes.dataLim.intervaly
    if base and lowest > 0 and highest >= base * lowest:
        axes.set_yscale("log", base=base)
        axes.yaxis.set_major_locator(LogLocator(base, subs=(1, 2, 5) if base == 10 else (1,), numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel=label)
    return finish(axes, name, f"{label[0].upper()}{label[1:]} against step", caption)
