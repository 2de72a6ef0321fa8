"""What a comparison shows at Weights & Biases: its rows as numbers, the report, and each chart as a page."""

from pathlib import Path

from reports.pages import charts, style, table
from reports.records.comparison import Comparison
from reports.records.layout import REPORT
from train.tracking.runs import ComparisonView


def comparison_view(folder: Path, comparison: Comparison) -> ComparisonView:
    """The view of a comparison whose runs lie in `folder`; without report.html it has no report."""
    rows = table.flat_rows(comparison)
    report = folder / REPORT
    pages = {"report": report.read_text(encoding="utf-8")} if report.exists() else {}
    pages |= {f"charts/{chart.name}": style.standalone(chart) for chart in charts.draw(folder, comparison)}
    return ComparisonView(list(rows[0]), [list(row.values()) for row in rows], pages)
