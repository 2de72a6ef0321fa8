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


def estimate(
    interval: Interval, decimals: int, unit: str = "", reference: float = 0, scale: float = 1, signed: bool = False
) -> str:
    """`scale` times the value and, in brackets, the interval: 0.98x [0.96, 0.999].

    An interval that excludes `reference` has as many decimals as it takes to read so.
    """
    value, low, high = (scale * end for end in (interval.value, interval.low, interval.high))
    if not low <= reference <= high:
        places = [_decimals_apart(figure, reference, decimals) for figure in (value, low, high)]
    else:
        places = [decimals] * 3
    return f"{number(value, places[0], unit, signed)} [{number(low, places[1])}, {number(high, places[2])}]"


def margin(row: Row) -> str:
    """The margin of a judged row, without zeros at its end where it is a difference of shares."""
    assert row.metric
    value = row.metric.scale * (row.margin or 0)
    text = f"{value:g}" if row.metric.width is not None else f"{value:.{row.metric.decimals}f}"
    return f"{text} {row.metric.difference_unit}".strip()


def ratio(value: float) -> str:
    """A speed-up that does not read as 1 unless it is."""
    return number(value, _decimals_apart(value, 1, 2), "x")


def count_of(amount: int, noun: str = "seed") -> str:
    """1 seed, 2 seeds."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def in_percent(share: float) -> str:
    """A share in per cent, with three digits."""
    return f"{100 * share:.3g}%"


def _decimals_apart(value: float, reference: float, decimals: int) -> int:
    """As many as `decimals`, or as it takes to tell `value` from `reference`."""
    while value != reference and decimals < 12 and float(f"{value:.{decimals}f}") == reference:
        decimals += 1
    return decimals
