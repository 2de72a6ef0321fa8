"""The charts of a comparison, in the order of its page: what its runs logged, differences, speed and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator
from numpy.typing import NDArray

from reports.pages import intervals
from reports.pages.drawing import RC, colour_of, figure_of, finish, list_lines
from reports.pages.formats import count_of, number
from reports.pages.precisions import appearance
from reports.pages.style import INK, Chart
from reports.pages.table import speedup
from reports.records import layout
from reports.records.comparison import Comparison, Row
from reports.records.metrics import LOSS, History, read_history

Floats = NDArray[np.float64]
SEED_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), "-.", (0, (8, 1, 1, 1, 1, 1)))
MOST_POINTS, MOST_CROSSES = 300, 200


def draw(folder: Path, comparison: Comparison) -> list[Chart]:
    """The charts for which there are records; `folder` has the runs."""
    histories = {run.name: read_history(folder / run.name / layout.METRICS) for run in comparison.runs}
    with matplotlib.rc_context(RC):
        charts = [_loss(comparison, histories), _metric(comparison, histories), intervals.pairs(comparison)]
        charts += [_speed(comparison), _memory(comparison), _scale(comparison, histories)]
    return [chart for chart in charts if chart is not None]


@dataclass(frozen=True)
class Curve:
    """A figure against step: the mean over runs, and their extremes."""

    seeds: int
    steps: Floats
    mean: Floats
    low: Floats
    high: Floats


def curve(histories: Sequence[History], key: str) -> Curve | None:
    """The curve over runs at the steps that all of them logged; None without one.

    Where a value is not finite there is a gap. Of very many steps, neighbours become one point.
    """
    series = [values for history in histories if (values := history.series(key))]
    steps = sorted(set.intersection(*map(set, series))) if series else []
    if not steps:
        return None
    table = np.array([[run[step] for step in steps] for run in series], dtype=np.float64)
    table[~np.isfinite(table)] = np.nan
    parts = np.array_split(np.arange(len(steps)), min(len(steps), MOST_POINTS))
    ends = np.array([steps[part[-1]] for part in parts], dtype=np.float64)
    mean, low, high = (np.array([reduce(table[:, part]) for part in parts]) for reduce in (np.mean, np.min, np.max))
    return Curve(len(series), ends, mean, low, high)


def _loss(comparison: Comparison, histories: Mapping[str, History]) -> Chart | None:
    figure, (axes,) = figure_of(3)
    seeds, curves = _curves(axes, comparison, histories, LOSS)
    values = _finite(curves)
    if not values.size:
        return None
    # Most of a training happens below a tenth of its first loss, where a linear axis shows a flat line.
    if values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel=f"training loss{' (log scale)' if axes.get_yscale() == 'log' else ''}")
    for precision in comparison.precisions:
        gaps = sum(histories[run.name].nonfinite_loss_steps() for run in comparison.runs_of(precision))
        seeds += f" {precision}: NaN or infinite in {count_of(gaps, 'step')}." if gaps else ""
    return finish(figure, "loss", "Training loss against step", f"Mean loss since the point before. {seeds}")


def _metric(comparison: Comparison, histories: Mapping[str, History]) -> Chart | None:
    metric = comparison.metric
    if metric is None:
        return None
    figure, (axes,) = figure_of(3)
    text, curves = _curves(axes, comparison, histories, metric.key)
    last = max((one.steps[-1] for one in curves), default=0)
    late, every = _finite(curves, since=last * 2 / 3), _finite(curves)
    if not late.size:
        return None
    # The climb at the beginning would press the end, where the precisions differ, into one line.
    room = 0.2 * np.ptp(late) or 0.05 * (metric.width or abs(late[0]) or 1)
    bottom, top = late.min() - room, late.max() + room
    axes.set_ylim(bottom, top)
    if every.min() < bottom or every.max() > top:
        text += " Zoomed to the end of training: earlier values lie outside."
        inside = [one.steps[(one.high >= bottom) & (one.low <= top)] for one in curves]
        first = np.concatenate(inside).min(initial=last)
        axes.set_xlim(left=first - 0.12 * (last - first))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{metric.scale * value:.6g}"))
    axes.set(xlabel="step", ylabel=f"evaluation {metric.label}" + (f" [{metric.unit}]" if metric.unit else ""))
    return finish(figure, "metric", f"Evaluation {metric.label} against step", f"Over the whole evaluation set. {text}")


def _speed(comparison: Comparison) -> Chart | None:
    rows, benchmark = [row for row in comparison.rows if row.samples_per_sec is not None], comparison.benchmark
    if not rows or benchmark is None:
        return None
    figure, (left, right) = figure_of(0.9 + 0.42 * len(rows), 2)
    _bars(left, rows, "speed [samples/s]", [row.samples_per_sec for row in rows], 0, [row.emulated for row in rows])
    left.xaxis.set_major_formatter(EngFormatter(sep=""))  # as 500k or 1.5M
    right.axvline(1, color=colour_of(layout.BASELINE), linewidth=1)
    for place, row in enumerate(rows):
        if one := intervals.Mark.of_speedup(row):
            intervals.draw_mark(right, one, place)
            # Away from the line at 1, which would strike the figure through.
            side, shift = ("left", 2) if one.value >= 1 else ("right", -2)
            text = speedup(row).figure
            right.annotate(text, (one.value, place), (shift, 7), textcoords="offset points", ha=side)
    right.set_xlabel("speed-up over FP32 [x]")
    right.margins(x=0.5)
    right.spines.left.set_visible(False)
    hollow = [f"{row.precision} ({row.arithmetic})" for row in rows if row.emulated]
    text = (
        f"{min(map(len, benchmark.seconds.values()))} rounds in one process, each a block of {benchmark.block_steps} "
        "steps in every precision, on a batch that is on the device already. Left: from the median block. "
        "Right: median ratio within a round and its 95% interval."
    )
    text += f" Hollow: {', '.join(hollow)}; no measure of hardware made for it." if hollow else ""
    return finish(figure, "speed", "Training speed and speed-up", text)


def _memory(comparison: Comparison) -> Chart | None:
    rows = [row for row in comparison.rows if row.saved_for_backward_mib is not None]
    if not rows:
        return None
    figure, (left, right) = figure_of(0.9 + 0.42 * len(rows), 2)
    _bars(left, rows, "saved for backward [MiB]", [row.saved_for_backward_mib for row in rows], 1)
    _bars(right, rows, "peak [MiB]", [row.peak_memory_mib for row in rows], 0)
    on_cpu = comparison.environment is not None and comparison.environment.device.type == "cpu"
    peak = "resident memory above the level before training" if on_cpu else "memory allocated on the device"
    text = f"Left: what autograd keeps for the backward pass of one step. Right: peak {peak}, the largest over seeds."
    return finish(figure, "memory", "Memory", text)


def _scale(comparison: Comparison, histories: Mapping[str, History]) -> Chart | None:
    figure, (axes,) = figure_of(2.6)
    crosses: list[tuple[int, float]] = []
    for run in comparison.runs:
        scales, counts = (histories[run.name].series(f"amp/{key}") for key in ("scale", "skipped_steps"))
        if scales:
            dash = SEED_DASHES[comparison.seeds.index(run.seed) % len(SEED_DASHES)]
            axes.step([*scales], [*scales.values()], color=colour_of(run.precision), linestyle=dash, label=run.name)
        rises = zip(counts.items(), [0.0, *counts.values()], strict=False)
        crosses += [(step, scales[step]) for (step, count), before in rises if count > before and step in scales]
    if not axes.lines:
        return None
    few = len(crosses) <= MOST_CROSSES
    if few and crosses:
        axes.plot(*zip(*crosses, strict=True), "x", color=INK, markersize=6)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel="loss scale (log scale)")
    marked = "A cross marks where" if few else f"At {len(crosses):,} points, too many to mark each,"
    skipped = {row.precision: row.skipped_steps for row in comparison.rows if row.skipped_steps}
    totals = " ".join(f"{name}: {count_of(count, 'skipped step')} over all seeds." for name, count in skipped.items())
    text = f"One line a seed. {marked} steps were skipped since the point before. {totals}"
    return finish(figure, "scale", "Loss scale against step", text)


def _curves(
    axes: Axes, comparison: Comparison, histories: Mapping[str, History], key: str
) -> tuple[str, list[Curve]]:  # fmt: skip
    """Draw a figure of every precision and say over how many seeds; unfinished runs are thin lines with a cross."""
    counts, thin = dict[str, int](), list[str]()
    curves = []
    for precision in comparison.precisions:
        look, runs = appearance(precision), comparison.runs_of(precision)
        line: dict[str, Any] = {"color": colour_of(precision), "linestyle": look.dash}
        if mean := curve([histories[run.name] for run in runs if run.finished], key):
            counts[precision] = mean.seeds
            curves.append(mean)
            marker = look.marker if key != LOSS or len(mean.steps) == 1 else None
            axes.plot(mean.steps, mean.mean, label=look.label, marker=marker, markersize=4, **line)
            axes.fill_between(mean.steps, mean.low, mean.high, color=line["color"], alpha=0.14, linewidth=0)
        for run in runs:
            if not run.finished and (alone := curve([histories[run.name]], key)):
                curves.append(alone)
                thin.append(f"{run.name} ({run.status})")
                axes.plot(alone.steps, alone.mean, linewidth=0.8, **line)
                axes.plot(alone.steps[-1:], alone.mean[-1:], "x", color=line["color"])
    over = ", ".join(f"{name} {count_of(count)}" for name, count in counts.items())
    if len(set(counts.values())) == 1:
        over = count_of(max(counts.values()))
    one = all(count == 1 for count in counts.values())
    text = "A single run each." if one else f"Line: mean over {over}; band: lowest to highest."
    return text + (f" Thin, up to a cross: {', '.join(thin)}." if thin else ""), curves


def _finite(curves: Sequence[Curve], since: float = 0) -> Floats:
    """All finite values at step `since` or later, those of the bands included."""
    parts = [values[one.steps >= since] for one in curves for values in (one.low, one.mean, one.high)]
    values: Floats = np.concatenate([np.empty(0), *parts])
    finite: Floats = values[np.isfinite(values)]
    return finite


def _bars(
    axes: Axes, rows: Sequence[Row], label: str, values: Sequence[float | None], decimals: int,
    hollow: Sequence[bool] = (),
) -> None:  # fmt: skip
    """A bar a row with its figure beside it."""
    list_lines(axes, [appearance(row.precision).label for row in rows])
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        colour = colour_of(row.precision)
        face = "none" if any(hollow[place : place + 1]) else colour
        bar = axes.barh(place, value or 0, height=0.55, facecolor=face, edgecolor=colour)
        axes.bar_label(bar, [number(value, decimals)], padding=3)
    axes.set_xlabel(label)
    axes.margins(x=0.34)  # room for the figure beside the longest bar
    axes.set_xlim(left=0)
