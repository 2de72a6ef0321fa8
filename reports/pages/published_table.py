"""Published numbers against measured ones, as tables."""

from collections.abc import Mapping, Sequence

from reports.analysis.reproduction import NOT_RUN, REPRODUCED, SCALED_DOWN, Reproduction
from reports.pages import markdown
from reports.pages.formats import MISSING
from reports.pages.precisions import in_order
from reports.pages.table import Cell, Column, Table

RULE = (
    "REPRODUCED: the mean over seeds is within 0.5 points of the published accuracy or error, or within 1% of the "
    "published loss. WITHIN NOISE: it is not, but there are at least 3 runs, and the published figure lies where 95% "
    "of single runs of ours would, evaluated on as many samples as the source drew; where these reach further than ten "
    "times those limits, it tells nothing and does not count. "
    "ABOVE and BELOW: neither, and ours is better or worse. SCALED-DOWN: recipe, data or runs are reduced, as said. "
    "Figures are selected as the source selects them; where it does not state how, the last evaluation is taken."
)


def published(reproductions: Sequence[Reproduction], hours: Mapping[str, float] | None = None, link: str = "") -> Table:
    """A line for each published row and precision, those that were measured first.

    One that was not run says how to run it, and how many `hours` that takes. Experiments link to `link`, formatted.
    """
    columns = [Column(title, "text") for title in ("published row", "experiment")] + [Column("precision", "precision")]
    columns += [Column("verdict", "text"), Column("published"), Column("measured")]
    columns += [Column(title, "long") for title in ("model, data, metric; source", "why")]
    rows = []
    described = ""
    for one in sorted(reproductions, key=lambda one: one.verdict == NOT_RUN):
        row, why = one.row, one.rule
        if one.verdict == NOT_RUN and one.command != "":
            estimate = (hours or {}).get(one.experiment)
            why += f": {one.command or f'bash scripts/reproduce.sh {row.id}'}"
            why += f", {about(estimate)} a run here" if estimate else ""
        place = link.format(one.experiment) if one.verdict != NOT_RUN else ""
        what = "" if row.id == described else f"{row.model}, {row.dataset}, {row.metric}; {row.source}"
        described = row.id
        texts = [one.verdict, _published(one), _measured(one), what, why]
        rows.append([Cell(row.id), Cell(one.experiment, link=place), Cell(one.precision), *map(Cell, texts)])
    return Table(columns, rows)


def summary(reproductions: Sequence[Reproduction]) -> str:
    """The published rows that were measured, as Markdown: a line each, a column a precision."""
    measured = [one for one in reproductions if one.verdict != NOT_RUN]
    if not measured:
        return "No experiment that aims at a published number has a committed record yet."
    precisions = in_order(one.precision or "" for one in measured)
    lines: dict[tuple[str, str], dict[str, Reproduction]] = {}
    for one in measured:
        lines.setdefault((one.row.id, one.experiment), {})[one.precision or ""] = one
    rows = []
    for (identity, experiment), by_precision in lines.items():
        first = next(iter(by_precision.values()))
        link = f"[{experiment}](reports/results/{experiment}/results.md)"
        cells = [_verdict(by_precision[name]) if name in by_precision else "" for name in precisions]
        rows.append([identity, link, _published(first), *cells])
    return markdown.table(
        ["published row", "experiment", "published", *precisions], rows, "ll" + "r" * len(rows[0][2:])
    )


def sentence(one: Reproduction) -> str:
    """One published row against ours, for a terminal."""
    ours = f"{one.precision or 'no precision'} {_measured(one) or MISSING}"
    return f"published {one.row.id}: {_published(one)}; {ours}: {one.verdict}, {one.rule}"


def about(hours: float) -> str:
    """An estimate in words, of which more than two digits would be made up."""
    return "less than 0.01 h" if hours < 0.01 else f"about {float(f'{hours:.2g}'):,g} h"


def _published(one: Reproduction) -> str:
    unit = "" if one.row.unit == "fraction" else f" {one.row.unit}"
    return f"{one.row.value}{unit} ({one.row.precision})"


def _measured(one: Reproduction) -> str | None:
    if one.mean is None:
        return None
    return f"{one.mean:.4g}" + (f" ± {one.sd:.2g} (n={len(one.measured)})" if one.sd is not None else " (single run)")


def _verdict(one: Reproduction) -> str:
    """Mean and verdict, and unless it is REPRODUCED how far the mean is off and how far single runs are."""
    text = f"{one.mean:.4g}: {one.verdict}"
    if one.verdict == REPRODUCED or one.gap is None:
        return text
    noise = (
        "" if one.verdict == SCALED_DOWN else ", noise not known" if one.noise is None else f", noise ±{one.noise:.2g}"
    )
    return f"{text} ({one.gap:+.2g}{noise})"
