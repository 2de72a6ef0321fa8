"""What is shown over all experiments: index.html in a browser, README.md with pictures on a code host."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.analysis import calibration
from reports.analysis.published import configurations
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
    named, costs = {folder.name: comparison for folder, comparison in comparisons.items()}, hours(out / "results")
    every, charts = list(named.values()), intervals.overview(list(named.values()))
    opening = (
        f"{len(every)} experiments on {sentences.devices(every)}; every figure is made by `python -m reports.build`."
    )
    says = [opening, *sentences.conclusions(every), f"Published numbers: {sentences.reproduced(reproductions)}"]
    notes = [f"{name} is left out: {reason}" for name, reason in left_out.items()]
    for name, config in configurations().items():
        if name not in named and not config.published:
            cost = f", {about(costs[name])} a run here" if name in costs else ""
            notes.append(f"Not run: {name}: `bash scripts/compare.sh configs/{name}.yaml`{cost}")
    verdicts = Table(calibration.TITLES, [rate.cells for rate in rates.rows])

    def page(file: str) -> Page:
        link = f"results/{{}}/{file}"
        sections = [
            Section("Experiments", summary(named, link), notes),
            Section("Charts", charts=charts),
            Section("Published against measured", published(reproductions, costs, link), [RULE]),
            Section("How often a verdict is wrong", verdicts, rates.notes),
        ]
        return Page("FP32 against mixed precision: results", says, sections)

    write_text(out / "index.html", page(REPORT).html())
    write_text(out / "README.md", page("results.md").markdown())
    for chart in charts:
        write_text(out / "figures" / f"{chart.name}.svg", chart.svg)


def summary(comparisons: Mapping[str, Comparison], link: str = "") -> Table:
    """A row an experiment: FP32's metric, and of each mixed precision speed, metric and memory against it."""
    precisions = in_order(row.precision for comparison in comparisons.values() for row in comparison.mixed_rows)
    titles = ["experiment", BASELINE, *(f"{precision} {title}" for precision in precisions for title in TITLES)]
    rows = []
    for name, comparison in comparisons.items():
        baseline = comparison.row(BASELINE)
        metric = table.measure(baseline, with_name=True) if baseline else MISSING
        rows.append([name, metric, *(text for other in precisions for text in _against(comparison.row(other)))])
    return Table(titles, rows, links=[link.format(name) for name in comparisons])


def _against(row: Row | None) -> list[str]:
    """A mixed precision's texts below `TITLES`."""
    if row is None:
        return [MISSING] * len(TITLES)
    judged = f"{table.difference(row)} {table.verdict(row)}" if row.seeds else table.measure(row)
    return [table.speedup(row), judged, number(row.saved_ratio, 2, "x")]
