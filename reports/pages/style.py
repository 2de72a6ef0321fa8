"""Figures as SVG inside an HTML page: text stays text, colours are CSS and follow the page's light or dark mode."""

import html
import io
import re
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Stand-ins that become CSS once drawn; the page defines --fp32 and so on.
INK, RULE, PAPER = "#010101", "#020202", "#010102"
PRECISIONS = {"fp32": "#030303", "tf32": "#040404", "bf16": "#050505", "fp16": "#060606"}
CSS = {INK: "currentColor", RULE: "var(--rule)", PAPER: "var(--paper)"} | {
    colour: f"var(--{name})" for name, colour in PRECISIONS.items()
}
# Shape tells the precisions apart where colour does not.
MARKERS = {"fp32": "o", "tf32": "D", "bf16": "s", "fp16": "^"}
# The hash salt fixes the names inside the file: the same figure gives the same bytes.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "amp-zoo",
    "font.size": 10,
    # Every number in full at its tick: a power of ten or an offset at the end of an axis is overlooked, or overprinted.
    "axes.formatter.limits": (-12, 12),
    "axes.formatter.useoffset": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.columnspacing": 1.4,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


@dataclass(frozen=True)
class Chart:
    """One figure of the page. `svg` holds what it shows in words too, for whoever does not see it."""

    name: str
    title: str
    caption: str
    svg: str


def figure_of(height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure with axes side by side; grid lines run across the values."""
    # Narrow, so that a text of 10 points has 11 pixels on a page of 400.
    made = Figure(figsize=(4.6, height), layout="constrained")
    found = list(made.subplots(1, columns, sharey=True, squeeze=False).flat)
    for axes in found:
        axes.grid(axis="both" if columns == 1 else "x", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True) if columns == 1 else MaxNLocator(4))
    return made, found


def chart(figure: Figure, name: str, title: str, caption: str, finding: str) -> Chart:
    """The finished `figure`, its legend above the data. `finding` says the figures that are drawn."""
    if figure.axes[0].get_legend_handles_labels()[1]:
        figure.legend(loc="outside upper left", ncols=4 if name != "scale" else 3)
    return Chart(name, title, " ".join(caption.split()), _inline(figure, name, title, finding))


def colour_of(precision: str) -> str:
    return PRECISIONS.get(precision, INK)


def mark_of(precision: str, hollow: bool) -> dict[str, Any]:
    """How Matplotlib draws one value of a precision: not filled where it is `hollow`."""
    look: dict[str, Any] = {"color": colour_of(precision), "marker": MARKERS.get(precision), "markersize": 4.5}
    return {**look, "markerfacecolor": PAPER} if hollow else look


def count_of(number: int, noun: str = "seed") -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _inline(figure: Figure, name: str, title: str, finding: str) -> str:
    """`figure` as an <svg> element called `title`, described by `finding` and by the element `name`-caption."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    # What comes before is the prologue, and a style that would hold for the whole page.
    body = text.partition("</defs>")[2]
    box = re.search(r'viewBox="[^"]+"', text)
    assert box is not None
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    # Names are kept where something points at them, and made unique in the page.
    body = re.sub(r' id="([^"]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    body = re.sub(r"xlink:href=\"#", f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    body = re.sub(r"font-family: [^;\"]+;? ?", "", body)
    body = re.sub(r"#0[1-6]0[1-6]0[1-6]\b", lambda found: CSS[found[0]], body)
    described = f'aria-describedby="{name}-finding {name}-caption"'
    finding = f'<desc id="{name}-finding">{html.escape(finding, quote=False)}</desc>'
    return f'<svg role="img" aria-label="{html.escape(title)}" {described} {box[0]}>{finding}{body}'
