"""What a comparison shows at Weights & Biases: conclusion, rows as numbers, report, each chart as a page, records."""

from pathlib import Path

from reports.pages import charts, style, table
from reports.pages.text_table import MISSING
from reports.records.comparison import Comparison, Row
from reports.records.layout import BENCHMARK, COMPARISON, MEMORY, REPORT
from train.tracking.runs import ComparisonView

RECORDS = (COMPARISON, "results.csv", "results.md", BENCHMARK, MEMORY, REPORT)


def comparison_view(folder: Path, comparison: Comparison) -> ComparisonView:
    """The view of a comparison whose runs lie in `folder`; without report.html it has no report."""
    rows = table.flat_rows(comparison)
    report = folder / REPORT
    pages = {"report": report.read_text(encoding="utf-8")} if report.exists() else {}
    pages |= {f"charts/{chart.name}": style.standalone(chart) for chart in charts.draw(folder, comparison)}
    conclusion = "\n".join(map(_sentence, comparison.mixed_rows))
    files = [path for name in RECORDS if (path := folder / name).exists()]
    return ComparisonView(conclusion, list(rows[0]), [list(row.values()) for row in rows], pages, files)


def _sentence(row: Row) -> str:
    """The verdict on one precision, and the figures that were measured."""
    if not row.seeds:
        return f"{row.precision}: {row.status}, {row.reason}."
    name = row.metric.label if row.metric else "metric"
    texts = {name: table.measure(row), "difference vs FP32": table.difference(row), "speed-up": table.speedup(row)}
    figures = [f"{what} {text}" for what, text in texts.items() if text != MISSING]
    return f"{row.precision}: {', '.join([table.verdict(row), *figures])}."
