"""Published numbers against measured ones, as tables."""

from collections.abc import Mapping, Sequence

from reports.analysis.reproduction import NOT_RUN, Reproduction
from reports.pages.text_table import MISSING, Table

TITLES = ("experiment", "published row", "precision", "verdict", "published", "measured")
RULE = (
    "REPRODUCED: our mean is within 0.5 points of a published accuracy or error, or 1% of a published loss. WITHIN "
    "NOISE: it is not, but the published figure lies where 95% of means of as many runs of ours would, their spread "
    "pooled over precisions with at least 4 degrees of freedom, and within ten times those limits. ABOVE and BELOW: "
    "neither. SCALED-DOWN: recipe, data or runs are reduced, as said."
)


def published(reproductions: Sequence[Reproduction], hours: Mapping[str, float] | None = None, link: str = "") -> Table:
    """A line for each published row and precision, those that were measured first.

    One that was not run says how to run it, and how many `hours` that takes. Experiments link to `link`, formatted.
    """
    rows, links, described = [], [], ""
    for one in sorted(reproductions, key=lambda one: one.verdict == NOT_RUN):
        row, why, cost = one.row, one.rule, (hours or {}).get(one.experiment)
        if one.verdict == NOT_RUN and one.command != "":
            why += f": {one.command or f'bash scripts/reproduce.sh {row.id}'}"
            why += f", {about(cost)} a run here" if cost else ""
        what = "" if row.id == described else f"{row.model}, {row.dataset}, {row.metric}; {row.source}"
        described = row.id
        texts = (one.experiment, row.id, one.precision or MISSING, one.verdict)
        rows.append([*texts, _published(one), _measured(one), what, why])
        links.append("" if one.verdict == NOT_RUN else link.format(one.experiment))
    return Table([*TITLES, "model, data, metric; source", "why"], rows, "llllrrll", links)


def sentence(one: Reproduction) -> str:
    """One published row against ours, for a terminal."""
    ours = f"{one.precision or 'no precision'} {_measured(one)}"
    return f"published {one.row.id}: {_published(one)}; {ours}: {one.verdict}, {one.rule}"


def about(hours: float) -> str:
    """An estimate in words, of which more than two digits would be made up."""
    return "less than 0.01 h" if hours < 0.01 else f"about {float(f'{hours:.2g}'):,g} h"


def _published(one: Reproduction) -> str:
    return f"{one.row.value}{'' if one.row.unit == 'fraction' else f' {one.row.unit}'} ({one.row.precision})"


def _measured(one: Reproduction) -> str:
    if one.mean is None:
        return MISSING
    return f"{one.mean:.4g}" + (f" ± {one.sd:.2g} (n={len(one.measured)})" if one.sd is not None else " (single run)")
