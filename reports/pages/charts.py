"""The charts of a comparison, in the order of the page; here those of what its runs logged, against step."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator
from numpy.typing import NDArray

from reports.pages import bars
from reports.pages import intervals as forest
from reports.pages.curves import Curve, Histories, curve, nonfinite_steps, series
from reports.pages.style import INK, MARKERS, STYLE, Chart, chart, colour_of, count_of, figure_of

Comparison = Mapping[str, Any]
# As markers do in `reports.pages.style`, dashes tell precisions and seeds apart where colour does not.
DASHES: dict[str, Any] = {"fp32": "-", "tf32": "-.", "bf16": (0, (5, 1.5)), "fp16": (0, (1.5, 1))}
SEED_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), "-.", (0, (8, 1, 1, 1, 1, 1)))
MOST_CROSSES = 200


def draw(comparison: Comparison, histories: Histories) -> list[Chart]:
    """The charts for which there are records; `histories` maps a run's name to the lines of its metrics.jsonl."""
    with matplotlib.rc_context(STYLE):
        found = [_loss(comparison, histories), _metric(comparison, histories), forest.pairs(comparison)]
        found += [bars.speed(comparison), bars.memory(comparison), _scale(comparison, histories)]
    return [one for one in found if one is not None]


def _loss(comparison: Comparison, histories: Histories) -> Chart | None:
    figure, (axes,) = figure_of(3)
    seeds, drawn = _curves(axes, comparison, histories, "train/loss", marked=False)
    values = _values(axes, since=0)
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
    text = f"Mean loss of the steps since the point before. {seeds} {_nonfinite(comparison, histories)}"
    return chart(figure, "loss", "Training loss against step", text, _ends(drawn, lambda value: f"{value:.4g}"))


def _metric(comparison: Comparison, histories: Histories) -> Chart | None:
    figure, (axes,) = figure_of(3)
    seeds, drawn = _curves(axes, comparison, histories, comparison["metric"], marked=True)
    late = _values(axes, since=axes.dataLim.x1 * 2 / 3)
    if not late.size:
        return None
    # The climb from chance would press the end, where the precisions differ, into one line.
    margin = 0.2 * np.ptp(late) or 0.05
    bottom, top = late.min() - margin, late.max() + margin
    percent = comparison["metric"] == "eval/accuracy"
    if percent:
        bottom, top = max(bottom, -0.02), min(top, 1 + 0.02 * (1 - bottom))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g}"))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_ylim(bottom, top)
    name = "evaluation " + comparison["metric"].removeprefix("eval/")
    axes.set(xlabel="step", ylabel=name + (" [%]" if percent else ""))
    zoom = ""
    if axes.dataLim.y0 < bottom or axes.dataLim.y1 > top:
        zoom = "Zoomed to the end of training: earlier values lie outside."
        steps = [line.get_xydata() for line in axes.lines]
        axes.set_xlim(left=_first_inside(np.concatenate(steps), bottom, top))
    text = f"At the precision of training, over the whole evaluation set. {seeds} {zoom}"
    finding = _ends(drawn, lambda value: f"{value:.2%}" if percent else f"{value:.4f}")
    return chart(figure, "metric", f"{name.capitalize()} against step", text, finding)


def _scale(comparison: Comparison, histories: Histories) -> Chart | None:
    figure, (axes,) = figure_of(2.6)
    totals: dict[str, list[int]] = {}
    crosses: list[tuple[int, float]] = []
    courses = []
    for run in comparison["runs"]:
        scales = series(histories[run["run"]], "amp/scale")
        if not scales:
            continue
        skipped = series(histories[run["run"]], "amp/skipped_steps")
        totals.setdefault(run["precision"], []).append(int(max(skipped.values(), default=0)))
        look = {
            "color": colour_of(run["precision"]),
            "linestyle": SEED_DASHES[comparison["seeds"].index(run["seed"]) % len(SEED_DASHES)],
            "label": f"{run['precision']}, seed {run['seed']}",
        }
        axes.step(list(scales), list(scales.values()), **look)
        first, *_, last = [*scales.values()] * 2
        courses.append(f"{look['label']}: from {first:,g} to {last:,g}")
        before = [0, *skipped.values()]
        at = [step for (step, count), last in zip(skipped.items(), before, strict=False) if count > last]
        crosses += [(step, scales[step]) for step in at if step in scales]
    if not totals:
        return None
    few = len(crosses) <= MOST_CROSSES
    if few and crosses:
        axes.plot(*zip(*crosses, strict=True), "x", color=INK, markersize=6)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"2{_superscript(round(math.log2(value)))}"))
    axes.yaxis.minorticks_off()
    axes.set(xlabel="step", ylabel="loss scale (log scale)")
    counts = [
        f"{name}: {count_of(sum(found), 'skipped step')} over {count_of(len(found))}." for name, found in totals.items()
    ]
    marked = "A cross marks where" if few else f"At {len(crosses):,} points, too many to mark each,"
    text = f"One line a seed. {marked} steps were skipped since the point before. {' '.join(counts)}"
    return chart(figure, "scale", "Loss scale against step", text, f"{'; '.join(courses)}.")


def _curves(
    axes: Axes, comparison: Comparison, histories: Histories, key: str, marked: bool
) -> tuple[str, dict[str, Curve]]:
    """Draw a metric of every precision and say over how many seeds; unfinished runs are thin lines with a cross.

    With it, by precision or unfinished run, what was drawn.
    """
    counts, thin = [], []
    drawn: dict[str, Curve] = {}
    for precision in comparison["precisions"]:
        runs = [run for run in comparison["runs"] if run["precision"] == precision]
        look = {"color": colour_of(precision), "linestyle": DASHES.get(precision, "-")}
        done = curve(histories, [run["run"] for run in runs if run["status"] == "finished"], key)
        if done is not None:
            counts.append((precision, done.seeds))
            drawn[precision] = done
            shape = MARKERS.get(precision) if marked or len(done.steps) == 1 else None
            axes.plot(done.steps, done.mean, label=precision, marker=shape, markersize=4, **look)
            axes.fill_between(done.steps, done.low, done.high, color=look["color"], alpha=0.14, linewidth=0)
            if len(done.steps) == 1:  # where a band has no width
                axes.vlines(done.steps, done.low, done.high, color=look["color"], linewidth=1)
        for run in runs:
            lone = curve(histories, [run["run"]], key) if run["status"] != "finished" else None
            if lone is not None:
                drawn[name := f"{run['run']} ({run['status']})"] = lone
                thin.append(name)
                axes.plot(lone.steps, lone.mean, linewidth=0.8, **look)
                axes.plot(lone.steps[-1:], lone.mean[-1:], "x", color=look["color"])
    one = all(count == 1 for _, count in counts)
    over = {count for _, count in counts}
    shared = (
        count_of(over.pop()) if len(over) == 1 else ", ".join(f"{name} {count_of(count)}" for name, count in counts)
    )
    text = "A single run each." if one else f"Line: mean over {shared}; band: lowest to highest." if counts else ""
    return text + (f" Thin, up to a cross: {', '.join(thin)}." if thin else ""), drawn


def _ends(drawn: Mapping[str, Curve], form: Callable[[float], str]) -> str:
    """Where each curve ends, in words; over several seeds with the ends of its band."""
    found = []
    for name, one in drawn.items():
        mean, low, high = (float(values[-1]) for values in (one.mean, one.low, one.high))
        ended = form(mean) if math.isfinite(mean) else "not finite"
        band = f" (from {form(low)} to {form(high)})" if one.seeds > 1 and math.isfinite(mean) else ""
        found.append(f"{name} {ended}{band} at step {one.steps[-1]:,}")
    return f"At the end: {'; '.join(found)}."


def _values(axes: Axes, since: float) -> NDArray[Any]:
    """All finite values that are drawn at step `since` or later, band edges included."""
    points = [np.asarray(line.get_xydata()) for line in axes.lines]
    points += [np.asarray(path.vertices) for band in axes.collections for path in band.get_paths()]
    found = np.concatenate(points) if points else np.empty((0, 2))
    return np.asarray(found[np.isfinite(found[:, 1]) & (found[:, 0] >= since), 1])


def _first_inside(points: NDArray[Any], bottom: float, top: float) -> float:
    """Where on the step axis a view from `bottom` to `top` begins: a little before its first point."""
    last = points[:, 0].max()
    first = points[(points[:, 1] >= bottom) & (points[:, 1] <= top), 0].min(initial=last)
    return float(first - 0.12 * (last - first))


def _nonfinite(comparison: Comparison, histories: Histories) -> str:
    counts = dict.fromkeys(comparison["precisions"], 0)
    for run in comparison["runs"]:
        counts[run["precision"]] += nonfinite_steps(histories[run["run"]])
    return " ".join(f"{name}: NaN or infinite in {count_of(count, 'step')}." for name, count in counts.items() if count)


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
