"""Differences to FP32 with their intervals, one line each: of one comparison's pairs, and of all comparisons."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import stats

from reports.analysis.statistics import SIGNIFICANCE
from reports.pages import table
from reports.pages.bars import speedup_in_words
from reports.pages.style import PRECISIONS, RULE, STYLE, Chart, chart, colour_of, figure_of, mark_of
from reports.pages.table import emulated
from reports.records.run import BASELINE

INTERVALS = "Marks: mean. Thin: 95% interval. Thick: 90% interval; EQUIVALENT is where that lies within the shading."
Row = Mapping[str, Any]
Line = tuple[Mapping[str, Any], Sequence[Row]]  # a comparison and those of its rows that are drawn


def pairs(comparison: Mapping[str, Any]) -> Chart | None:
    """The difference to FP32 of every seed, and their mean with its 95% and 90% intervals, against the margin.

    None for single runs, whose difference has no interval.
    """
    rows = [row for row in comparison["rows"] if row["verdict"] is not None]
    if not rows:
        return None
    accuracy = comparison["metric"] == "eval/accuracy"
    unit = 100 if accuracy else 1
    figure, axes = _lines([row["precision"] for row in rows], 0.45)
    baseline = {run["seed"]: run["value"] for run in _finished(comparison, BASELINE)}
    for place, row in enumerate(rows):
        runs = [run for run in _finished(comparison, row["precision"]) if run["seed"] in baseline]
        values = [unit * (run["value"] - baseline[run["seed"]]) for run in runs]
        axes.plot(values, [place + 0.22] * len(values), "|", color=colour_of(row["precision"]), markersize=7)
        _mark(axes, row, place, "difference", unit)
        _thick(axes, row, place, unit)
    margin = unit * rows[0]["margin"]
    axes.axvspan(-margin, margin, color=RULE, alpha=0.45, linewidth=0)
    axes.axvline(0, color=PRECISIONS[BASELINE], linewidth=1)
    name = comparison["metric"].removeprefix("eval/")
    axes.set_xlabel(f"{name} minus that of FP32" + (" [points]" if accuracy else ""))
    axes.margins(x=0.1)
    text = f"Strokes: one seed each. {INTERVALS} Shaded: differences within the margin. {_wider([comparison])}"
    finding = "; ".join(map(_difference_in_words, rows))
    return chart(figure, "pairs", "Paired differences to FP32", text, f"{finding}. Margin: {margin:.4g}.")


def overview(comparisons: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """The speed-ups of all comparisons, and those differences in quality that more than one seed give."""
    with matplotlib.rc_context(STYLE):
        return [found for found in (_speedups(comparisons), _qualities(comparisons)) if found is not None]


def _speedups(comparisons: Sequence[Mapping[str, Any]]) -> Chart | None:
    # Speed that is not the precision's own does not decide where an experiment stands.
    lines = _sorted(comparisons, "speedup", lambda _, row: (not emulated(row), row["speedup"]))
    if not lines:
        return None
    figure, axes = _lines(_names(lines), 0.38, inside=True)
    shown = [[{**row, "hollow": emulated(row)} for row in rows] for _, rows in lines]
    _marks(axes, shown, "speedup", lambda row: 1.0)
    _reference(axes, 1, len(lines))
    axes.set_xlabel("speed-up over FP32 [x]")
    text = "Samples per second over those of FP32: median ratio of the blocks of a round and its 95% interval."
    hollow = sorted({f"{row['precision']}: {row['arithmetic']}" for rows in shown for row in rows if row["hollow"]})
    if hollow:
        text += f" Hollow: emulated ({'; '.join(hollow)}), which says nothing about the speed of hardware made for it."
    finding = _in_words([(found, [speedup_in_words(row) for row in rows]) for found, rows in lines])
    return chart(figure, "speedups", "How much faster", text, finding)


def _qualities(comparisons: Sequence[Mapping[str, Any]]) -> Chart | None:
    lines = _sorted(comparisons, "difference_low", _better_by)  # what has no interval has no verdict
    if not lines:
        return None
    figure, axes = _lines(_names(lines), 0.38, inside=True)
    shown = [[{**row, "sign": _sign(found)} for row in rows] for found, rows in lines]
    _marks(axes, shown, "difference", lambda row: row["sign"] / row["margin"])
    for place, (found, rows) in enumerate(lines):
        for offset, row in enumerate(rows):
            _thick(axes, row, _place(place, offset), _sign(found) / row["margin"])
    axes.axvspan(-1, 1, color=RULE, alpha=0.45, linewidth=0)
    _reference(axes, 0, len(lines))
    axes.set_xlabel("better than FP32 by [margins]")
    text = (
        "Accuracy or loss against FP32 over paired seeds, in units of each experiment's margin, better to the right. "
        f"{INTERVALS} Shaded: within the margin. Experiments of one seed have no interval and are left out. "
        f"{_wider([found for found, _ in lines])}"
    )
    finding = _in_words([(found, [_difference_in_words(row) for row in rows]) for found, rows in lines])
    return chart(figure, "qualities", "Whether it costs accuracy", text, finding)


def decisive(row: Row) -> tuple[float, float]:
    """The ends of the interval that decides equivalence, from those of the wider one.

    Both are the mean plus and minus a quantile of Student's t times the same error: of 90% and 95% for one look,
    narrower tails for more, as in `statistics.judge`.
    """
    tail, freedom = SIGNIFICANCE / row["looks"], row["pairs"] - 1
    share = stats.t.ppf(1 - tail, freedom) / stats.t.ppf(1 - tail / 2, freedom)
    reach = float(share) * (row["difference_high"] - row["difference_low"]) / 2
    return row["difference"] - reach, row["difference"] + reach


def _wider(comparisons: Sequence[Mapping[str, Any]]) -> str:
    looked = [found["experiment"] for found in comparisons if found["looks"] > 1]
    return (
        f"Both intervals are wider where seeds were added while a verdict was open: {', '.join(looked)}."
        if looked
        else ""
    )


def _difference_in_words(row: Row) -> str:
    unit, form = (100, ".2f") if row["metric"] == "eval/accuracy" else (1, ".4f")
    low, high = (f"{unit * end:{form}}" for end in decisive(row))
    share = table.in_percent(1 - 2 * SIGNIFICANCE / row["looks"])
    return f"{row['precision']} {table.verdict(row)}, {table.difference(row)}, {share} [{low}, {high}]"


def _in_words(lines: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> str:
    return " ".join(f"{comparison['experiment']}: {'; '.join(texts)}." for comparison, texts in lines)


def _sign(comparison: Mapping[str, Any]) -> int:
    return 1 if comparison["higher_is_better"] else -1


def _better_by(comparison: Mapping[str, Any], row: Row) -> float:
    """In margins."""
    return float(_sign(comparison) * row["difference"] / row["margin"])


def _sorted(comparisons: Sequence[Mapping[str, Any]], key: str, worth: Callable[..., Any]) -> list[Line]:
    """Each comparison with its mixed precisions' rows that have `key`, that of most `worth` first; none without rows.

    `worth` is that of a comparison and one of its rows; a comparison has that of its best row.
    """
    lines = [
        (comparison, [row for row in comparison["rows"] if row["precision"] != BASELINE and row[key] is not None])
        for comparison in comparisons
    ]
    return sorted(
        (line for line in lines if line[1]), key=lambda line: max(worth(line[0], row) for row in line[1]), reverse=True
    )


def _names(lines: Sequence[Line]) -> list[str]:
    return [comparison["experiment"] for comparison, _ in lines]


def _lines(names: Sequence[str], height: float, inside: bool = False) -> tuple[Figure, Axes]:
    """Axes with a line for each name, from top to bottom; the names beside them, or `inside` above their marks."""
    figure, (axes,) = figure_of(0.9 + height * len(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [] if inside else names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    for place, name in enumerate(names if inside else ()):
        axes.axhline(place - 0.5, color=RULE, linewidth=0.6)
        axes.text(0, place - 0.25, f" {name}", transform=axes.get_yaxis_transform(), va="center")
    return figure, axes


def _marks(axes: Axes, lines: Sequence[Sequence[Row]], key: str, scale: Any) -> None:
    """Every comparison's precisions on its line, one under the other, each in the legend once."""
    shown: set[str] = set()
    for place, rows in enumerate(lines):
        for offset, row in enumerate(rows):
            label = None if row["precision"] in shown else row["precision"]
            shown.add(row["precision"])
            _mark(axes, row, _place(place, offset), key, scale(row), label)


def _place(line: int, offset: int) -> float:
    """Where on its line a comparison's precision of that number is, under the name."""
    return line + 0.08 + 0.22 * offset


def _reference(axes: Axes, value: float, lines: int) -> None:
    """Where FP32 is, beside the marks of each line; it leaves out the names, which it would strike through."""
    places = range(lines)
    ends = [place - 0.06 for place in places], [place + 0.5 for place in places]
    axes.vlines([value] * lines, *ends, color=PRECISIONS[BASELINE], linewidth=1, zorder=1.5)


def _thick(axes: Axes, row: Row, place: float, scale: float) -> None:
    """The part of a whisker that decides equivalence, times `scale`."""
    low, high = sorted(scale * end for end in decisive(row))
    axes.hlines(place, low, high, color=colour_of(row["precision"]), linewidth=3)


def _mark(axes: Axes, row: Row, place: float, key: str, scale: float, label: str | None = None) -> None:
    """One value with its interval, times `scale`; not filled where the row is `hollow`."""
    value, *ends = (scale * row[name] for name in (key, f"{key}_low", f"{key}_high"))
    look = mark_of(row["precision"], row.get("hollow", False))
    reach = [[value - min(ends)], [max(ends) - value]]
    axes.errorbar(value, place, xerr=reach, capsize=2.5, linewidth=1, label=label, **look)


def _finished(comparison: Mapping[str, Any], precision: str) -> list[Row]:
    return [run for run in comparison["runs"] if run["precision"] == precision and run["status"] == "finished"]
