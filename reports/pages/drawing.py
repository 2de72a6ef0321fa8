"""How charts are drawn: SVG in which text stays text, in the stand-in colours of `style`."""

import io
import re
from collections.abc import Iterable
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.pages.precisions import appearance
from reports.pages.style import INK, OTHER, PAPER, RULE, STAND_INS, Chart

RC: Any = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.formatter.limits": (-12, 12),  # every number in full at its tick, without a power of ten beside the axis
    "axes.formatter.useoffset": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def figure_of(height: float, columns: int = 1, width: float = 4.6) -> tuple[Figure, list[Axes]]:
    """An empty figure with axes side by side; narrow, so that a text of 10 points has 11 pixels on a page of 400."""
    figure = Figure(figsize=(width, height), layout="constrained")
    row = list(figure.subplots(1, columns, sharey=True, squeeze=False).flat)
    for axes in row:
        axes.grid(axis="both" if columns == 1 else "x", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(5 if columns == 1 else 4))
    return figure, row


def list_lines(axes: Axes, names: Iterable[str]) -> None:
    """Name the lines 0, 1, ... of `axes` from top to bottom."""
    names = list(names)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def finish(figure: Figure, name: str, title: str, caption: str) -> Chart:
    """The chart of a finished `figure`, its legend above the data."""
    if figure.axes[0].get_legend_handles_labels()[1]:
        figure.legend(loc="outside upper left", ncols=4)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # with a fixed salt, the same figure gives the same bytes
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    # Before the body stand a prologue and a style that would hold for the whole page.
    body = buffer.getvalue().partition("</defs>")[2].replace("xlink:href=", "href=")
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", body)  # others are not unique
    body = re.sub(r"font-family: [^;\"]+;? ?", "", body)
    width, height = (72 * inches for inches in figure.get_size_inches())
    size = f'viewBox="0 0 {width:g} {height:g}" style="min-width: {width:g}px; max-width: {1.6 * width:g}px"'
    head = f'<svg role="img" aria-label="{title}" {size}>'
    return Chart(name, title, " ".join(caption.split()), head + body)


def colour_of(precision: str) -> str:
    """The stand-in for its colour."""
    return STAND_INS.get(precision, OTHER)


def mark_of(precision: str, hollow: bool = False) -> dict[str, Any]:
    """How Matplotlib draws one value of a precision."""
    fill = {"markerfacecolor": PAPER} if hollow else {}
    return {"color": colour_of(precision), "marker": appearance(precision).marker, "markersize": 4.5, **fill}
