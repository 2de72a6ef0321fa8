"""How charts are drawn: SVG in which text stays text, on no background."""

import io
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.pages.precisions import GREY
from reports.pages.style import Chart

RC: Any = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.formatter.limits": (-12, 12),  # every number in full at its tick, without a power of ten beside the axis
    "axes.formatter.useoffset": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), GREY
    ),
}


def new_axes(height: float) -> Axes:
    """Empty axes that fit into a page of 400 pixels."""
    axes = Figure(figsize=(3.7, height), layout="constrained").subplots()
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return axes


def finish(axes: Axes, name: str, title: str, caption: str) -> Chart:
    """The chart of finished `axes`, its legend above the data."""
    figure = axes.get_figure(root=True)
    assert figure
    if axes.get_legend_handles_labels()[1]:
        figure.legend(loc="outside upper left", ncols=4)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # with a fixed salt, the same figure gives the same bytes
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Chart(name, title, caption, buffer.getvalue())
