"""Pages of tables and charts: HTML that follows the light or dark mode of its reader, and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.pages.precisions import PRECISIONS
from reports.pages.table import Table
from reports.records.layout import BASELINE

# Stand-ins that charts are drawn with; each output puts its own colours in their place.
INK, RULE, PAPER, OTHER = "#010101", "#010102", "#010103", "#010104"
STAND_INS = {name: f"#0102{place:02x}" for place, name in enumerate(PRECISIONS)}
OF_PAGE = {INK: "currentColor", RULE: "var(--rule)", PAPER: "var(--paper)", OTHER: "var(--muted)"}
OF_PAGE |= {stand_in: f"var(--{name})" for name, stand_in in STAND_INS.items()}
GREY = "#77818c"  # of equal contrast with white and with the dark page of a code host
FIXED = {INK: GREY, RULE: "rgba(125, 135, 145, 0.3)", PAPER: "none", OTHER: GREY}
FIXED |= {stand_in: GREY if name == BASELINE else PRECISIONS[name].light for name, stand_in in STAND_INS.items()}

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Chart:
    """A figure. `drawing` is its SVG in stand-in colours."""

    name: str
    title: str
    caption: str
    drawing: str

    @property
    def svg(self) -> Markup:
        """For a page."""
        return Markup(self._coloured(OF_PAGE))

    @property
    def file(self) -> str:
        """For a file of its own, in fixed colours that can be read on white and on dark."""
        root = '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif"'
        return self._coloured(FIXED).replace("<svg", root, 1)

    def _coloured(self, colours: Mapping[str, str]) -> str:
        drawing = self.drawing
        for stand_in, colour in colours.items():
            drawing = drawing.replace(stand_in, colour)
        return drawing


@dataclass(frozen=True)
class Section:
    """A part of a page: its table, then notes, a command, and charts."""

    title: str = ""
    table: Table | None = None
    notes: Sequence[str] = ()
    code: str = ""
    charts: Sequence[Chart] = ()

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")

    def markdown(self) -> str:
        """Without the title. The charts are files in figures/."""
        parts = [self.table.markdown()] if self.table else []
        parts += ["\n".join(f"- {note}" for note in self.notes)] if self.notes else []
        parts += [f"```bash\n{self.code}\n```"] if self.code else []
        parts += [f"![{chart.title}](figures/{chart.name}.svg)\n\n{chart.caption}" for chart in self.charts]
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Page:
    """A title, a line on what it is about, the answers as sentences, and the evidence in sections."""

    title: str
    about: str = ""
    answers: Sequence[str] = ()
    sections: Sequence[Section] = ()

    def html(self) -> str:
        """One file that needs no other."""
        return TEMPLATES.get_template("page.html.jinja").render(page=self, precisions=PRECISIONS)

    def markdown(self) -> str:
        """The same for a code host."""
        sections = [f"## {section.title}\n\n{section.markdown()}" for section in self.sections]
        return "\n\n".join([f"# {self.title}", self.about, *self.answers, *sections]) + "\n"


def standalone(chart: Chart) -> str:
    """`chart` as an HTML page."""
    return Page(chart.title, sections=[Section(charts=[chart])]).html()
