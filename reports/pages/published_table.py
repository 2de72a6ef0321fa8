"""The texts of the table of published numbers against measured ones."""

from collections.abc import Sequence

from reports.analysis.reproduction import NOT_RUN, REPRODUCED, SCALED_DOWN, Reproduction
from reports.pages import table

ORDER = ("fp32", "tf32", "bf16", "fp16")

RULE = (
    "REPRODUCED: the mean over seeds is within 0.5 points of the published accuracy or error, or within 1% of the "
    "published loss. WITHIN NOISE: it is not, but there are at least 3 runs, and the published figure lies where 95% "
    "of single runs of ours would, evaluated on as many samples as the source drew; where these reach further than ten "
    "times those limits, it tells nothing and does not count. "
    "ABOVE and BELOW: neither, and ours is better or worse. SCALED-DOWN: recipe, data or runs are reduced, as said. "
    "Figures are selected as the source selects them; where it does not state how, the last evaluation is taken."
)
TITLES = {
    "id": "published row",
    "experiment": "experiment",
    "precision": "precision",
    "published": "published",
    "measured": "measured",
    "verdict": "verdict",
    "what": "model, data, metric",
    "source": "source",
    "why": "why",
}


def published_cells(found: Reproduction, hours: float | None = None) -> dict[str, str]:
    """The texts of `TITLES` for one published number.

    One that was not run says how to, and how many `hours` a run is estimated to take.
    """
    row = found.row
    unit = "" if row["unit"] == "fraction" else f" {row['unit']}"
    measured = table.MISSING
    if found.mean is not None:
        spread = f" ± {found.sd:.2g} (n={len(found.measured)})" if found.sd is not None else " (single run)"
        measured = f"{found.mean:.4g}{spread}"
    why = found.rule
    if found.verdict == NOT_RUN and found.command != "":
        command = found.command or f"bash scripts/reproduce.sh {row['id']}"
        why += f": {command}" + (f", {about(hours)} a run here" if hours else "")
    return {
        "id": row["id"],
        "experiment": found.experiment or table.MISSING,
        "precision": found.precision or table.MISSING,
        "published": f"{row['value']}{unit} ({row['precision']})",
        "measured": measured,
        "verdict": found.verdict,
        "what": f"{row['model']}, {row['dataset']}, {row['metric']}",
        "source": row["source"],
        "why": why,
    }


def about(hours: float) -> str:
    """An estimate in words, of which more than two digits would be made up."""
    if hours < 0.01:
        return "less than 0.01 h"
    return f"about {float(f'{hours:.2g}'):,g} h"


def summary(found: Sequence[Reproduction]) -> str:
    """The published numbers that were aimed at by real runs as Markdown: a line each, a column a precision."""
    measured = [one for one in found if one.verdict != NOT_RUN]
    if not measured:
        return "No experiment that aims at a published number has a committed record yet."
    precisions = [name for name in ORDER if any(one.precision == name for one in measured)]
    lines: dict[tuple[str, str], dict[str, Reproduction]] = {}
    for one in measured:
        lines.setdefault((one.row["id"], one.experiment or ""), {})[one.precision or ""] = one
    titles = ["published row", "experiment", "published", *precisions]
    rows = [titles, [":--", ":--", "--:", *["--:"] * len(precisions)]]
    for (identity, experiment), by_precision in lines.items():
        texts = {name: published_cells(one) for name, one in by_precision.items()}
        link = f"[{experiment}](reports/results/{experiment}/report.html)"
        cells = [
            f"{texts[name]['measured']}: {_verdict(by_precision[name])}" if name in texts else "" for name in precisions
        ]
        first = next(iter(texts.values()))
        rows.append([f"{identity}: {first['what']}", link, first["published"], *cells])
    return "\n".join(map(table.line, rows))


def _verdict(found: Reproduction) -> str:
    """The verdict, and unless it is REPRODUCED how far the mean is off and how far single runs are."""
    if found.verdict == REPRODUCED or found.gap is None:
        return found.verdict
    noise = "" if found.verdict == SCALED_DOWN else ", noise not known"
    if found.noise is not None:
        noise = f", noise ±{found.noise:.2g}"
    return f"{found.verdict} ({found.gap:+.2g}{noise})"
