"""Figures as texts. Those of a metric follow its `Metric`; one that was not measured is `MISSING`, never a number."""

from reports.records.comparison import Interval, Row
from reports.records.metric import Metric

MISSING = "n/a"


def number(value: float | None, decimals: int = 0, unit: str = "", signed: bool = False) -> str:
    """`value` with thousands apart and its unit; % and x stand close to the number."""
    if value is None:
        return MISSING
    return f"{value:{'+' if signed else ''},.{decimals}f}{unit if unit in ('', '%', 'x') else f' {unit}'}"


def measured(metric: Metric | None, value: float | None) -> str:
    """A value of `metric`."""
    if metric is None or value is None:
        return MISSING
    return number(metric.scale * value, metric.decimals, metric.unit)


def estimate(interval: Interval, decimals: int, unit: str, reference: float, scale: float = 1) -> str:
    """`scale` times the value and, in brackets, the interval; a difference, from the `reference` 0, has its sign.

    An interval that excludes `reference` has as many decimals as it takes to read so: 0.98x [0.96, 0.999].
    """
    figures = [scale * figure for figure in (interval.value, interval.low, interval.high)]
    excluded = not interval.low <= reference <= interval.high
    places = [decimals] * 3
    for place, figure in enumerate(figures):
        while excluded and places[place] < 12 and float(f"{figure:.{places[place]}f}") == reference:
            places[place] += 1
    value, low, high = figures
    text = number(value, places[0], unit, signed=reference == 0)
    return f"{text} [{number(low, places[1])}, {number(high, places[2])}]"


def margin(row: Row) -> str:
    """The margin of a judged row, without zeros at its end where it is a difference of shares."""
    assert row.metric
    value = row.metric.scale * (row.margin or 0)
    text = f"{value:g}" if row.metric.width is not None else f"{value:.{row.metric.decimals}f}"
    return f"{text} {row.metric.difference_unit}".strip()


def in_percent(share: float) -> str:
    """A share in per cent, with three digits."""
    return f"{100 * share:.3g}%"
