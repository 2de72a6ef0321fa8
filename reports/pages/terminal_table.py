"""A comparison for a terminal of 80 columns: the figures that decide. All others are in the report."""

from reports.pages import table
from reports.pages.text_table import Table, number
from reports.records.comparison import Comparison, Row
from reports.records.summary import FINISHED


def terminal_table(comparison: Comparison) -> Table:
    """A row a precision: value, difference vs FP32, speed, activation memory, verdict."""
    metric = comparison.metric
    measure = ", ".join(text for text in (metric.label, metric.unit) if text) if metric else "metric"
    titles = ["", measure, "difference", "speed", "act.\nmemory", "verdict"]
    return Table(titles, [_cells(row, len(comparison.seeds)) for row in comparison.rows], "lrrrrl")


def heading(comparison: Comparison) -> str:
    """What the table is of."""
    count = len(comparison.seeds)
    seeds = "one seed" if count == 1 else f"mean of {count} seeds"
    intervals = f"{table.level(comparison.looks)} intervals"
    return f"{comparison.experiment} on {table.device(comparison)}: {seeds}, vs FP32 with {intervals}"


def reasons(comparison: Comparison) -> list[str]:
    """Why rows have not all of their runs and figures."""
    rows = [row for row in comparison.rows if row.status != FINISHED]
    has_runs = {row.precision: row.seeds == len(comparison.seeds) for row in rows}
    return [f"{row.precision}{'' if has_runs[row.precision] else f' {row.status}'}: {row.reason}" for row in rows]


def _cells(row: Row, seeds: int) -> list[str]:
    verdict = table.verdict(row) if row.seeds else row.status
    if row.is_baseline:
        return [row.precision, _value(row, seeds), "", "", "", verdict]
    memory = number(row.saved_ratio, 2, "x")
    return [row.precision, _value(row, seeds), _difference(row), table.speedup(row), memory, verdict]


def _value(row: Row, seeds: int) -> str:
    if row.metric is None or row.mean is None:
        return number(None)
    value = number(row.metric.scale * row.mean, row.metric.decimals)
    spread = "" if row.sd is None else f" ±{number(row.metric.scale * row.sd, row.metric.decimals)}"
    return f"{value}{spread}{'' if row.seeds == seeds else f' (n={row.seeds})'}"


def _difference(row: Row) -> str:
    metric = row.metric
    if metric is None or row.difference is None:
        return number(None)
    value = number(metric.scale * row.difference, metric.decimals, signed=True)
    if row.interval is None:
        return value
    return f"{value} {table.ends(row.interval, max(0, metric.decimals - 1), 0, metric.scale)}"
