"""The figures of a comparison's rows as bars: speed and memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from reports.pages import formats as ratio
from reports.pages.style import PRECISIONS, Chart, chart, colour_of, count_of, figure_of, mark_of
from reports.pages.table import MISSING, emulated, kind_of_device
from reports.records.run import BASELINE


def speed(comparison: Mapping[str, Any]) -> Chart | None:
    """Samples per second, and the paired ratio to FP32 with its interval where there is one."""
    rows = [row for row in comparison["rows"] if row["samples_per_sec"] is not None]
    if not rows:
        return None
    paired = [(place, row) for place, row in enumerate(rows) if row["speedup"] is not None]
    figure, (left, *right) = _row_axes(rows, 2 if paired else 1)
    _bars(left, rows, "samples_per_sec", "speed [samples/s]", ",.0f")
    left.xaxis.set_major_formatter(EngFormatter(sep=""))  # as 500k or 1.5M
    for axes in right:
        axes.spines.left.set_visible(False)
        axes.axvline(1, color=PRECISIONS[BASELINE], linewidth=1)
        for place, row in paired:
            value = row["speedup"]
            reach = [[value - row["speedup_low"]], [row["speedup_high"] - value]]
            axes.errorbar(value, place, xerr=reach, capsize=4, **mark_of(row["precision"], emulated(row)))
            # Away from the line at 1, which would strike the figure through.
            side, shift = ("left", 2) if value >= 1 else ("right", -2)
            axes.annotate(ratio.shown(row)[0], (value, place), (shift, 7), textcoords="offset points", ha=side)
        axes.set_xlabel("speed-up over FP32 [x]")
        axes.margins(x=0.35)
    benchmark = comparison["benchmark"]
    text = (
        f"{min(map(len, benchmark['seconds'].values()))} rounds in one process, in each round a block of "
        f"{benchmark['block_steps']} steps in every precision, on a batch that is on the device already. "
        "Left: from the median block."
        + (" Right: median ratio within a round and its 95% interval; the line at 1 is FP32." if paired else "")
    )
    finding = "; ".join(", ".join(_speed_in_words(row)) for row in rows)
    return chart(figure, "speed", "Training speed and speed-up", f"{text} {_hollow(rows)}", f"{finding}.")


def memory(comparison: Mapping[str, Any]) -> Chart | None:
    """Bytes saved for the backward pass, and the peak."""
    rows = [row for row in comparison["rows"] if row["saved_for_backward_mib"] is not None]
    if not rows:
        return None
    figure, (left, right) = _row_axes(rows, 2)
    _bars(left, rows, "saved_for_backward_mib", "saved for backward [MiB]", ",.1f")
    _bars(right, rows, "peak_memory_mib", "peak [MiB]", ",.0f")
    on_cpu = kind_of_device(comparison) == "cpu"
    peak = "resident memory above the level before training" if on_cpu else "memory allocated on the device"
    text = "Left: what autograd keeps for the backward pass of one step, the same for every seed. "
    text += f"Right: peak {peak}, the largest of {count_of(max(row['seeds'] for row in rows))}."
    parts = [
        f"{label}: " + ", ".join(f"{row['precision']} {_mebibytes(row[key], form)}" for row in rows)
        for key, label, form in (
            ("saved_for_backward_mib", "Saved for backward", ",.1f"),
            ("peak_memory_mib", "Peak", ",.0f"),
        )
    ]
    return chart(figure, "memory", "Memory", text, f"{'. '.join(parts)}.")


def speedup_in_words(row: Mapping[str, Any]) -> str:
    """The speed-up that is drawn for a row, as bf16 1.30x [1.29, 1.30]."""
    return f"{row['precision']} {' '.join(ratio.shown(row))}" + (" (emulated)" if emulated(row) else "")


def _speed_in_words(row: Mapping[str, Any]) -> list[str]:
    rate = f"{row['samples_per_sec']:,.0f} samples/s"
    return [f"{row['precision']} {rate}"] if row["speedup"] is None else [speedup_in_words(row), rate]


def _mebibytes(value: float | None, form: str) -> str:
    return MISSING if value is None else f"{value:{form}} MiB"


def _row_axes(rows: Sequence[Mapping[str, Any]], columns: int) -> tuple[Figure, list[Axes]]:
    """Axes side by side, with the precisions from top to bottom."""
    figure, found = figure_of(0.9 + 0.42 * len(rows), columns)
    found[0].set_yticks(range(len(rows)), [row["precision"] for row in rows])
    found[0].set_ylim(len(rows) - 0.4, -0.6)
    for axes in found:
        axes.tick_params(axis="y", length=0)
    return figure, found


def _bars(axes: Axes, rows: Sequence[Mapping[str, Any]], key: str, label: str, form: str) -> None:
    for place, row in enumerate(rows):
        if row[key] is None:
            axes.text(0, place, f" {MISSING}", va="center")
            continue
        colour = colour_of(row["precision"])
        face = "none" if key == "samples_per_sec" and emulated(row) else colour
        bar = axes.barh(place, row[key], height=0.55, facecolor=face, edgecolor=colour)
        axes.bar_label(bar, [f"{row[key]:{form}}"], padding=3)
    axes.set_xlabel(label)
    axes.margins(x=0.34)  # room for the figure beside the longest bar
    axes.set_xlim(left=0)


def _hollow(rows: Sequence[Mapping[str, Any]]) -> str:
    found = [f"{row['precision']} ({row['arithmetic']})" for row in rows if emulated(row)]
    return f"Hollow: {', '.join(found)}; no measure of hardware made for it." if found else ""
