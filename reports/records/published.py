"""published.csv: figures that others published."""

import csv
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt

UNKNOWN = "not known"


class PublishedRow(BaseModel):
    """One published figure; `value` with its published digits.

    `evaluated_samples` is how many samples the source drew at random to evaluate on, None where it took all.
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

    @property
    def target(self) -> float:
        """The figure as a number; raises ValueError naming the row where it is none."""
        try:
            return float(self.value)
        except ValueError:
            raise ValueError(f"published.csv: row {self.id!r}: value {self.value!r} is not a number") from None


def read_published(path: Path) -> dict[str, PublishedRow]:
    """The rows by id; raises ValueError (pydantic's ValidationError) naming what is wrong."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [{key: text for key, text in line.items() if text} for line in csv.DictReader(file)]
    return {line["id"]: PublishedRow.model_validate(line) for line in lines}
