"""What is shown over all experiments: index.html in a browser, README.md with pictures on a code host."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reports.analysis import calibration
from reports.analysis import published as published_rows
from reports.analysis.reproduction import Reproduction, hours
from reports.pages import intervals, sentences, table
from reports.pages.precisions import in_order
from reports.pages.published_table import RULE, about, published
from reports.pages.style import Page, Section
from reports.pages.table import Cell, Column, Table
from reports.records.comparison import Comparison
from reports.records.files import write_text
from reports.records.layout import BASELINE, REPORT


def write(
    out: Path,
    comparisons: Mapping[Path, Comparison],
    left_out: Mapping[str, str],
    reproductions: Sequence[Reproduction],
    rates: calibration.Rates,
) -> None:
    """index.html, README.md and figures/ in the folder `out`; `left_out` says why an experiment is in no table."""
    every, costs = list(comparisons.values()), hours(out / "results")
    conclusions = [*sentences.conclusions(every), f"Published against measured: {sentences.reproduced(reproductions)}"]
    notes = [*(f"{name} is left out: {reason}" for name, reason in left_out.items())]
    notes += _not_run({folder.name for folder in comparisons}, costs)
    drawn = intervals.overview(every)
    verdicts = Table(
        [Column(calibration.TITLES[0], "text"), *map(Column, calibration.TITLES[1:])],
        [[Cell(text) for text in rate.cells] for rate in rates.rows],
    )

    def page(file: str) -> Page:
        link = f"results/{{}}/{file}"
        origin = "every figure is made by `python -m reports.build` from a committed run record"
        sections = [
            Section("Experiments", summary({folder.name: one for folder, one in comparisons.items()}, link), notes),
            Section("Charts", charts=drawn),
            Section("Published against measured", published(reproductions, costs, link), [RULE]),
            Section("How often a verdict is wrong", verdicts, rates.notes),
        ]
        about = f"{len(every)} experiments on {sentences.devices(every)}; {origin}."
        return Page("FP32 against mixed precision: results", about, conclusions, sections)

    write_text(out / "index.html", page(REPORT).html())
    write_text(out / "README.md", page("results.md").markdown())
    for chart in drawn:
        write_text(out / "figures" / f"{chart.name}.svg", chart.file)


def summary(comparisons: Mapping[str, Comparison], link: str = "") -> Table:
    """A row an experiment: FP32's metric, and of each mixed precision speed, metric and memory against it."""
    precisions = in_order(row.precision for comparison in comparisons.values() for row in comparison.mixed_rows)
    titles = ("speed-up [95%]", "difference, verdict", "saved for backward")
    columns = [Column("experiment", "text"), Column(BASELINE)]
    columns += [Column(f"{precision} {title}") for precision in precisions for title in titles]
    rows = []
    for name, comparison in comparisons.items():
        cells = [Cell(name, link=link.format(name))]
        for precision in [BASELINE, *precisions]:
            row = comparison.row(precision)
            if row is None:
                cells += [Cell()] * (1 if precision == BASELINE else len(titles))
            elif row.is_baseline:
                measure = table.measure(row)
                cells.append(replace(measure, note=f"{row.metric.label} {measure.note}") if row.metric else measure)
            else:
                judged = replace(table.difference(row), note=table.verdict(row)) if row.seeds else table.measure(row)
                cells += [table.speedup(row), judged, Cell(row.saved_ratio, 2, "x")]
        rows.append(cells)
    return Table(columns, rows)


def _not_run(recorded: set[str], costs: Mapping[str, float]) -> list[str]:
    """A sentence on each experiment that has no record and no published row to say so."""
    return [
        f"Not run: {name}: `bash scripts/compare.sh configs/{name}.yaml`"
        + (f", {about(costs[name])} a run here" if name in costs else "")
        for name, config in published_rows.configurations().items()
        if name not in recorded and not config.published
    ]
