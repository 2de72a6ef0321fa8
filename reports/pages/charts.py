"""The charts of a comparison, in the order of its page: what its runs logged against step, speed and memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator
from numpy.typing import NDArray

from reports.pages import formats, intervals
from reports.pages.formats import count_of
from reports.pages.precisions import appearance
from reports.pages.style import INK, STYLE, Chart, colour_of, figure_of, finish
from reports.pages.table import speedup
from reports.records import layout
from reports.records.comparison import Comparison, Row
from reports.records.metrics import LOSS, History, read_history

Histories = Mapping[str, History]
Floats = NDArray[np.float64]
SEED_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), "-.", (0, (8, 1, 1, 1, 1, 1)))
MOST_POINTS, MOST_CROSSES = 300, 200


def draw(folder: Path, comparison: Comparison) -> list[Chart]:
    """The charts for which there are records; `folder` has the runs."""
    histories = {run.name: read_history(folder / run.name / layout.METRICS) for run in comparison.runs}
    with matplotlib.rc_context(STYLE):
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


def _loss(comparison: Comparison, histories: Histories) -> Chart | None:
    figure, (axes,) = figure_of(3)
    seeds, curves = _curves(axes, comparison, histories, LOSS, marked=False)
    values = _finite(curves)
    if not values.size:
        return None
    # Most of a training happens below a tenth of its first loss, where a linear axis shows a flat line.
    logarithmic = values.min() > 0 and values.max() > 10 * values.min()
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel="training loss" + (" (log scale)" if logarithmic else ""))
    counts = {
        name: sum(run.summary.nonfinite_loss_steps or 0 for run in comparison.runs_of(name))
        for name in comparison.precisions
    }
    gaps = " ".join(f"{name}: NaN or infinite in {count_of(count, 'step')}." for name, count in counts.items() if count)
    return finish(figure, "loss", "Training loss against step", f"Mean loss since the point before. {seeds} {gaps}")


def _metric(comparison: Comparison, histories: Histories) -> Chart | None:
    metric = comparison.metric
    if metric is None:
        return None
    figure, (axes,) = figure_of(3)
    seeds, curves = _curves(axes, comparison, histories, metric.key, marked=True)
    last = max((one.steps[-1] for one in curves), default=0)
    late = _finite(curves, since=last * 2 / 3)
    if not late.size:
        return None
    # The climb at the beginning would press the end, where the precisions differ, into one line.
    room = 0.2 * np.ptp(late) or 0.05 * (metric.width or abs(late[0]) or 1)
    bottom, top = late.min() - room, late.max() + room
    least, most = metric.range
    bottom = bottom if least is None else max(bottom, least - 0.02 * (top - least))
    top = top if most is None else min(top, most + 0.02 * (most - bottom))
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{metric.scale * value:.6g}"))
    axes.set(xlabel="step", ylabel=f"evaluation {metric.label}" + (f" [{metric.unit}]" if metric.unit else ""))
    inside = [one.steps[(one.high >= bottom) & (one.low <= top)] for one in curves]
    zoom = ""
    if _finite(curves).min() < bottom or _finite(curves).max() > top:
        zoom = "Zoomed to the end of training: earlier values lie outside."
        first = np.concatenate(inside).min(initial=last)
        axes.set_xlim(left=first - 0.12 * (last - first))
    text = f"At the precision of training, over the whole evaluation set. {seeds} {zoom}"
    return finish(figure, "metric", f"Evaluation {metric.label} against step", text)


def _speed(comparison: Comparison) -> Chart | None:
    rows, benchmark = [row for row in comparison.rows if row.samples_per_sec is not None], comparison.benchmark
    if not rows or benchmark is None:
        return None
    paired = any(row.speedup for row in rows)
    figure, (left, *right) = figure_of(0.9 + 0.42 * len(rows), 2 if paired else 1)
    _bars(left, rows, [row.samples_per_sec for row in rows], "speed [samples/s]", hollow=[row.emulated for row in rows])
    left.xaxis.set_major_formatter(EngFormatter(sep=""))  # as 500k or 1.5M
    for axes in right:
        axes.spines.left.set_visible(False)
        axes.axvline(1, color=colour_of(layout.BASELINE), linewidth=1)
        for place, row in enumerate(rows):
            if row.speedup:
                intervals.mark(axes, intervals.Mark.of_speedup(row), place)
                # Away from the line at 1, which would strike the figure through.
                side, shift = ("left", 2) if row.speedup.value >= 1 else ("right", -2)
                value = (row.speedup.value, place)
                axes.annotate(speedup(row).figure, value, (shift, 7), textcoords="offset points", ha=side)
        axes.set_xlabel("speed-up over FP32 [x]")
        axes.margins(x=0.35)
    hollow = [f"{row.precision} ({row.arithmetic})" for row in rows if row.emulated]
    text = (
        f"{min(map(len, benchmark.seconds.values()))} rounds in one process, each a block of {benchmark.block_steps} "
        "steps in every precision, on a batch that is on the device already. Left: from the median block."
        + (" Right: median ratio within a round and its 95% interval." if paired else "")
        + (f" Hollow: {', '.join(hollow)}; no measure of hardware made for it." if hollow else "")
    )
    return finish(figure, "speed", "Training speed and speed-up", text)


def _memory(comparison: Comparison) -> Chart | None:
    rows = [row for row in comparison.rows if row.saved_for_backward_mib is not None]
    if not rows:
        return None
    figure, (left, right) = figure_of(0.9 + 0.42 * len(rows), 2)
    _bars(left, rows, [row.saved_for_backward_mib for row in rows], "saved for backward [MiB]", decimals=1)
    _bars(right, rows, [row.peak_memory_mib for row in rows], "peak [MiB]")
    on_cpu = comparison.environment is not None and comparison.environment.device.type == "cpu"
    peak = "resident memory above the level before training" if on_cpu else "memory allocated on the device"
    text = f"Left: what autograd keeps for the backward pass of one step. Right: peak {peak}, the largest over seeds."
    return finish(figure, "memory", "Memory", text)


def _scale(comparison: Comparison, histories: Histories) -> Chart | None:
    figure, (axes,) = figure_of(2.6)
    skipped: dict[str, list[int]] = {}
    crosses: list[tuple[int, float]] = []
    for run in comparison.runs:
        scales = histories[run.name].series("amp/scale")
        counts = histories[run.name].series("amp/skipped_steps")
        if not scales:
            continue
        skipped.setdefault(run.precision, []).append(int(max(counts.values(), default=0)))
        dash = SEED_DASHES[comparison.seeds.index(run.seed) % len(SEED_DASHES)]
        label = f"seed {run.seed}" if len(skipped) == 1 else f"{run.precision}, seed {run.seed}"
        axes.step([*scales], [*scales.values()], color=colour_of(run.precision), linestyle=dash, label=label)
        before = [0.0, *counts.values()]
        crosses += [
            (step, scales[step])
            for (step, count), earlier in zip(counts.items(), before, strict=False)
            if count > earlier and step in scales
        ]
    if not skipped:
        return None
    few = len(crosses) <= MOST_CROSSES
    if few and crosses:
        axes.plot(*zip(*crosses, strict=True), "x", color=INK, markersize=6)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel="loss scale (log scale)")
    totals = [f"{name}: {count_of(sum(s), 'skipped step')} over {count_of(len(s))}." for name, s in skipped.items()]
    marked = "A cross marks where" if few else f"At {len(crosses):,} points, too many to mark each,"
    text = f"One line a seed. {marked} steps were skipped since the point before. {' '.join(totals)}"
    return finish(figure, "scale", "Loss scale against step", text)


def _curves(
    axes: Axes, comparison: Comparison, histories: Histories, key: str, marked: bool
) -> tuple[str, list[Curve]]:
    """Draw a figure of every precision and say over how many seeds; unfinished runs are thin lines with a cross."""
    counts: dict[str, int] = {}
    thin, curves = [], []
    for precision in comparison.precisions:
        runs = comparison.runs_of(precision)
        line: dict[str, Any] = {"color": colour_of(precision), "linestyle": appearance(precision).dash}
        mean = curve([histories[run.name] for run in runs if run.finished], key)
        if mean:
            counts[precision] = mean.seeds
            curves.append(mean)
            marker = appearance(precision).marker if marked or len(mean.steps) == 1 else None
            axes.plot(mean.steps, mean.mean, label=appearance(precision).label, marker=marker, markersize=4, **line)
            axes.fill_between(mean.steps, mean.low, mean.high, color=line["color"], alpha=0.14, linewidth=0)
        for run in runs:
            if not run.finished and (alone := curve([histories[run.name]], key)):
                curves.append(alone)
                thin.append(f"{run.name} ({run.status})")
                axes.plot(alone.steps, alone.mean, linewidth=0.8, **line)
                axes.plot(alone.steps[-1:], alone.mean[-1:], "x", color=line["color"])
    each = ", ".join(f"{name} {count_of(count)}" for name, count in counts.items())
    over = count_of(max(counts.values())) if len(set(counts.values())) == 1 else each
    one = all(count == 1 for count in counts.values())
    text = "A single run each." if one else f"Line: mean over {over}; band: lowest to highest."
    return text + (f" Thin, up to a cross: {', '.join(thin)}." if thin else ""), curves


def _finite(curves: Sequence[Curve], since: float = 0) -> Floats:
    """All finite values at step `since` or later, those of the bands included."""
    parts = [values[one.steps >= since] for one in curves for values in (one.low, one.mean, one.high)]
    values = np.concatenate(parts) if parts else np.empty(0)
    return values[np.isfinite(values)]


def _bars(
    axes: Axes, rows: Sequence[Row], values: Sequence[float | None], label: str, decimals: int = 0,
    hollow: Sequence[bool] = (),
) -> None:  # fmt: skip
    """A bar a row with its figure beside it, from top to bottom."""
    axes.set_yticks(range(len(rows)), [appearance(row.precision).label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        colour = colour_of(row.precision)
        face = "none" if any(hollow[place : place + 1]) else colour
        bar = axes.barh(place, value or 0, height=0.55, facecolor=face, edgecolor=colour)
        axes.bar_label(bar, [formats.number(value, decimals)], padding=3)
    axes.set_xlabel(label)
    axes.margins(x=0.34)  # room for the figure beside the longest bar
    axes.set_xlim(left=0)
