"""The experiments that aim at published figures, and what such a figure is measured by."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.records.config import Experiment, read_config
from reports.records.metric import Metric
from reports.records.published import PublishedRow, read_published

ROOT = Path(__file__).resolve().parents[2]
# Of a published unit, the unit of our metrics and by what their shown value is divided.
UNITS = {"fraction": ("%", 100.0), "nats/char": ("nats", 1.0), "nats/token": ("nats", 1.0)}
SHARE_OF_RANGE, SHARE_OF_VALUE = 0.005, 0.01  # how far from a published figure is still reproduced


@dataclass(frozen=True)
class Measure:
    """Our metric for a published figure: a value of it reads `factor` times as much in the row's unit.

    Where the row counts errors and the metric successes, the value is first taken from the `whole`.
    """

    metric: Metric
    factor: float = 1.0
    whole: float | None = None

    @property
    def higher_is_better(self) -> bool:
        """Of the published figure."""
        return self.metric.higher_is_better == (self.whole is None)

    def read(self, value: float) -> float:
        """A recorded `value` in the row's unit."""
        return (value if self.whole is None else self.whole - value) * self.factor

    def margin(self, target: float) -> float:
        """How far from `target` is still reproduced: a share of the metric's range, or of `target` without limits."""
        width = self.metric.width
        return SHARE_OF_VALUE * target if width is None else SHARE_OF_RANGE * width * self.factor


def measure_of(row: PublishedRow, metrics: Sequence[Metric]) -> Measure | None:
    """By which of a run's `metrics`, the deciding one first, `row` is measured; None where none has its unit."""
    unit, divisor = UNITS.get(row.unit, (row.unit, 1.0))
    metric = next((metric for metric in metrics if metric.unit == unit), None)
    if metric is None:
        return None
    counts_errors = "error" in row.metric and metric.higher_is_better
    return Measure(metric, metric.scale / divisor, metric.range[1] if counts_errors else None)


def rows() -> dict[str, PublishedRow]:
    """The published rows by id."""
    return read_published(ROOT / "reports" / "published.csv")


def configurations() -> dict[str, Experiment]:
    """All configurations by name; raises ValueError naming a file that is none."""
    return {path.stem: read_config(path) for path in sorted((ROOT / "configs").glob("*.yaml"))}


def aimed_at() -> tuple[dict[str, PublishedRow], dict[str, Experiment]]:
    """All `rows`, and the `configurations` that aim at some; raises ValueError naming a row that is not published."""
    known = rows()
    aims = {name: config for name, config in configurations().items() if config.published}
    for name, config in aims.items():
        if unknown := [row for row in config.published if row not in known]:
            raise ValueError(f"configs/{name}.yaml: published: {unknown_row(unknown[0], known)}")
    return known, aims


def unknown_row(identity: str, known: Iterable[str]) -> str:
    """That there is no such row, and which of `known` may have been meant."""
    nearest = difflib.get_close_matches(identity.lower(), list(known), n=1, cutoff=0.5)
    return f"unknown published row {identity!r}:" + (f" did you mean {nearest[0]!r}?" if nearest else "")
