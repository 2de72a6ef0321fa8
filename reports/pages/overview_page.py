"""What is shown over all experiments: index.html in a browser, README.md with pictures on a code host."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.analysis import calibration
from reports.analysis import published as published_rows
from reports.analysis.reproduction import Reproduction, hours
from reports.pages import intervals, sentences, table
from reports.pages.formats import MISSING, number
from reports.pages.precisions import in_order
from reports.pages.published_table import RULE, about, published
from reports.pages.style import Page, Section
from reports.pages.text_table import Table
from reports.records.comparison import Comparison, Row
from reports.records.files import write_text
from reports.records.layout import BASELINE, REPORT

TITLES = ("speed-up [95%]", "difference, verdict", "saved for backward")


def write(
    out: Path,
    comparisons: Mapping[Path, Comparison],
    left_out: Mapping[str, str],
    reproductions: Sequence[Reproduction],
    rates: calibration.Rates,
) -> None:
    """index.html, README.md and figures/ in the folder `out`; `left_out` says why an experiment is in no table."""
    every = {folder.name: comparison for folder, comparison in comparisons.items()}
    costs, charts = hours(out / "results"), intervals.overview(list(every.values()))
    about_all = (
        f"{len(every)} experiments on {sentences.devices(list(every.values()))}; every figure is made by "
        "`python -m reports.build` from a committed run record."
    )
    published_line = f"Published against measured: {sentences.reproduced(reproductions)}"
    notes = [f"{name} is left out: {reason}" for name, reason in left_out.items()]
    for name, config in published_rows.configurations().items():
        if name not in every and not config.published:
            cost = f", {about(costs[name])} a run here" if name in costs else ""
            notes.append(f"Not run: {name}: `bash scripts/compare.sh configs/{name}.yaml`{cost}")
    for file, target in (("index.html", REPORT), ("README.md", "results.md")):
        link = f"results/{{}}/{target}"
        sections = [
            Section("Experiments", summary(every, link), notes),
            Section("Charts", charts=charts),
            Section("Published against measured", published(reproductions, costs, link), [RULE]),
            Section(
                "How often a verdict is wrong",
                Table(calibration.TITLES, [rate.cells for rate in rates.rows]),
                rates.notes,
            ),
        ]
        opening = [about_all, *sentences.conclusions(list(every.values())), published_line]
        page = Page("FP32 against mixed precision: results", opening, sections)
        write_text(out / file, page.html() if file == "index.html" else page.markdown())
    for chart in charts:
        write_text(out / "figures" / f"{chart.name}.svg", chart.svg)


def summary(comparisons: Mapping[str, Comparison], link: str = "") -> Table:
    """A row an experiment: FP32's metric, and of each mixed precision speed, metric and memory against it."""
    precisions = in_order(row.precision for comparison in comparisons.values() for row in comparison.mixed_rows)
    titles = ["experiment", BASELINE, *(f"{precision} {title}" for precision in precisions for title in TITLES)]
    rows = [
        [name, *_baseline(one.row(BASELINE)), *(text for other in precisions for text in _mixed(one.row(other)))]
        for name, one in comparisons.items()
    ]
    return Table(titles, rows, links=[link.format(name) for name in comparisons])


def _baseline(row: Row | None) -> list[str]:
    return [table.measure(row, row.metric.label if row.metric else "") if row else MISSING]


def _mixed(row: Row | None) -> list[str]:
    """The texts below `TITLES`."""
    if row is None:
        return [MISSING] * len(TITLES)
    judged = f"{table.difference(row)} {table.verdict(row)}" if row.seeds else table.measure(row)
    return [table.speedup(row), judged, number(row.saved_ratio, 2, "x")]
