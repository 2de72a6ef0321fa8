"""The experiments that aim at published figures, and what such a figure is measured by."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.records.config import Experiment, read_config
from reports.records.metric import Metric
from reports.records.published import PublishedRow, read_published

ROOT = Path(__file__).resolve().parents[2]
# What a share, or a loss in nats, is multiplied by in a published unit.
UNITS = {"fraction": 1.0, "%": 100.0, "x100": 100.0, "nats/char": 1.0, "nats/token": 1.0}
ERRORS = "1 - "  # before the metric of a row that counts what the metric does not
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
    """The one of a run's `metrics` that measures `row`, by its name; None where none does or the unit is another."""
    name = (row.our_metric or "").removeprefix(ERRORS)
    metric = next((metric for metric in metrics if metric.name == name), None)
    if metric is None or row.unit not in (*UNITS, metric.unit):
        return None
    factor = UNITS.get(row.unit, 1.0) * (0.01 if metric.unit == "%" and metric.scale == 1 else 1.0)
    return Measure(metric, factor, metric.range[1] if row.our_metric != name else None)


def why_unmeasured(row: PublishedRow, data: str) -> str | None:
    """Why an experiment on the data set `data` does not measure `row`; None where it may."""
    if row.our_metric is None or row.our_data is None:
        return f"row {row.id!r} is of {row.metric} on {row.dataset}, which no experiment measures"
    if row.our_data != data:
        return f"row {row.id!r} is of {row.metric} on {row.dataset} (data.name {row.our_data!r}), not on {data!r}"
    return None


def rows() -> dict[str, PublishedRow]:
    """The published rows by id."""
    return read_published(ROOT / "reports" / "published.csv")


def configurations() -> dict[str, Experiment]:
    """All configurations by name; raises ValueError naming a file that is none."""
    return {path.stem: read_config(path) for path in sorted((ROOT / "configs").glob("*.yaml"))}


def aimed_at() -> tuple[dict[str, PublishedRow], dict[str, Experiment]]:
    """All `rows`, and the `configurations` that aim at some.

    Raises ValueError naming a row that is not published, or that is of another data set or metric.
    """
    known = rows()
    aims = {name: config for name, config in configurations().items() if config.published}
    for name, config in aims.items():
        if unknown := [row for row in config.published if row not in known]:
            raise ValueError(f"configs/{name}.yaml: published: {unknown_row(unknown[0], known)}")
        for row in config.published:
            if fault := why_unmeasured(known[row], config.data.name):
                raise ValueError(f"configs/{name}.yaml: published: {fault}")
    return known, aims


def unknown_row(identity: str, known: Iterable[str]) -> str:
    """That there is no such row, and which of `known` may have been meant."""
    nearest = difflib.get_close_matches(identity.lower(), list(known), n=1, cutoff=0.5)
    return f"unknown published row {identity!r}:" + (f" did you mean {nearest[0]!r}?" if nearest else "")
