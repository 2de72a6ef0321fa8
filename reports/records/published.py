"""published.csv: figures that others published."""

import contextlib
import csv
import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt

UNKNOWN = "not known"


class PublishedRow(BaseModel):
    """One published figure; `value` with its published digits.

    `evaluated_samples` is how many samples the source drew at random to evaluate on, None where it took all, and
    `runs` of how many runs it is the mean. `our_data` is the data set of the catalogue, and `our_metric` the name of
    the metric that measures it here, `1 - accuracy` where the source counts errors; None where there is none.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    model: str = UNKNOWN
    dataset: str = UNKNOWN
    metric: str = UNKNOWN
    selection: str = "not stated"
    unit: str = ""
    precision: str = UNKNOWN
    value: str = UNKNOWN
    source: str = UNKNOWN
    evaluated_samples: PositiveInt | None = None
    our_data: str | None = None
    our_metric: str | None = None
    runs: PositiveInt = 1

    @property
    def target(self) -> float:
        """The figure as a number; raises ValueError naming the row where it is none."""
        with contextlib.suppress(ValueError):
            if math.isfinite(target := float(self.value)):
                return target
        raise ValueError(f"published.csv: row {self.id!r}: value {self.value!r} is not a finite number")


def read_published(path: Path) -> dict[str, PublishedRow]:
    """The rows by id; raises ValueError (pydantic's ValidationError) naming what is wrong."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [{key: text for key, text in line.items() if text} for line in csv.DictReader(file)]
    rows = {row.id: row for row in map(PublishedRow.model_validate, lines)}
    if len(rows) < len(lines):
        raise ValueError(f"{path}: an id stands twice")
    return rows
