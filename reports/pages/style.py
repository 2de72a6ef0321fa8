"""Charts as SVG: text stays text, and colours are CSS that follows the page's light or dark mode, or fixed ones."""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.pages.precisions import PRECISIONS, appearance

# Stand-ins that Matplotlib draws with; each output puts its own colours in their place.
INK, RULE, PAPER, OTHER = "#010101", "#010102", "#010103", "#010104"
STAND_INS = {name: f"#0102{place:02x}" for place, name in enumerate(PRECISIONS)}
PAGE = {INK: "currentColor", RULE: "var(--rule)", PAPER: "var(--paper)", OTHER: "var(--muted)"} | {
    stand_in: f"var(--{name})" for name, stand_in in STAND_INS.items()
}
# Greys of equal contrast with white and with the dark page of a code host; there is no paper to fill with.
FIXED = {INK: "#77818c", RULE: "rgba(125, 135, 145, 0.3)", PAPER: "none", OTHER: "#77818c"} | {
    stand_in: "#77818c" if name == "fp32" else PRECISIONS[name].light for name, stand_in in STAND_INS.items()
}
STYLE: Any = {
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
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["precisions"] = PRECISIONS


@dataclass(frozen=True)
class Chart:
    """One figure. `drawing` is its SVG in stand-in colours."""

    name: str
    title: str
    caption: str
    drawing: str

    @property
    def svg(self) -> Markup:
        """For a page that defines the variables of style.css."""
        return Markup(_coloured(self.drawing, PAGE))

    @property
    def file(self) -> str:
        """For a file of its own, in colours that can be read on white and on dark."""
        head = '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif"'
        return _coloured(self.drawing, FIXED).replace("<svg", head, 1)


def standalone(chart: Chart) -> str:
    """`chart` as an HTML page of its own."""
    return TEMPLATES.get_template("chart.html.jinja").render(chart=chart)


def figure_of(height: float, columns: int = 1, width: float = 4.6) -> tuple[Figure, list[Axes]]:
    """An empty figure with axes side by side; narrow, so that a text of 10 points has 11 pixels on a page of 400."""
    figure = Figure(figsize=(width, height), layout="constrained")
    row = list(figure.subplots(1, columns, sharey=True, squeeze=False).flat)
    for axes in row:
        axes.grid(axis="both" if columns == 1 else "x", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(5 if columns == 1 else 4))
    return figure, row


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
    width, height = (f"{72 * inches:g}" for inches in figure.get_size_inches())
    head = f'<svg role="img" aria-label="{title}" viewBox="0 0 {width} {height}">'
    return Chart(name, title, " ".join(caption.split()), head + body)


def colour_of(precision: str) -> str:
    """The stand-in for its colour."""
    return STAND_INS.get(precision, OTHER)


def mark_of(precision: str, hollow: bool = False) -> dict[str, Any]:
    """How Matplotlib draws one value of a precision."""
    fill = {"markerfacecolor": PAPER} if hollow else {}
    return {"color": colour_of(precision), "marker": appearance(precision).marker, "markersize": 4.5, **fill}


def _coloured(drawing: str, colours: dict[str, str]) -> str:
    for stand_in, colour in colours.items():
        drawing = drawing.replace(stand_in, colour)
    return drawing
