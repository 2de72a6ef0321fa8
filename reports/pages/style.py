"""Pages of tables and charts, as HTML and as Markdown."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports.pages.text_table import Table

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Chart:
    """A figure as SVG, readable on white and on dark."""

    name: str
    title: str
    caption: str
    svg: str

    @property
    def address(self) -> str:
        """Where an image finds it: in the page itself."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True)
class Tile:
    """The answer for one precision: its verdict with a remark, and figures, each as label, value and detail."""

    name: str
    verdict: str
    remark: str
    figures: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Section:
    """A part of a page: its table, then notes, a command, and charts."""

    title: str = ""
    table: Table | None = None
    notes: Sequence[str] = ()
    code: str = ""
    charts: Sequence[Chart] = ()

    def markdown(self) -> str:
        """The charts are files in figures/."""
        parts = [f"## {self.title}"] if self.title else []
        parts += [self.table.markdown()] if self.table else []
        parts += ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        parts += [f"```bash\n{self.code}\n```"] if self.code else []
        parts += [f"![{chart.title}](figures/{chart.name}.svg)\n\n{chart.caption}" for chart in self.charts]
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Page:
    """A title, what it is about in sentences, the answer in tiles (HTML alone), and the evidence in sections."""

    title: str
    sentences: Sequence[str]
    sections: Sequence[Section]
    tiles: Sequence[Tile] = ()

    def html(self) -> str:
        """One file that needs no other."""
        return TEMPLATES.get_template("page.html.jinja").render(page=self)

    def markdown(self) -> str:
        """The same for a code host."""
        return "\n\n".join([f"# {self.title}", *self.sentences, *(one.markdown() for one in self.sections)]) + "\n"


def standalone(chart: Chart) -> str:
    """`chart` as an HTML page."""
    return Page(chart.title, [], [Section(charts=[chart])]).html()
