"""What a metric is. The task declares it, every record carries it, and every table and chart formats by it."""

from collections.abc import Collection

from pydantic import ConfigDict, Field

from reports.records.files import Schema
from reports.records.layout import COLUMNS

PREFIX = "eval/"


class Metric(Schema):
    """One figure of an evaluation, its lowest and highest value (None is no limit), and the decimals to show.

    `key` is its name in records, `fp32_key` that of the same weights in FP32, `label` its name in sentences.

    A share (from 0 to 1) in the unit "%" is shown times 100.
    """

    model_config = ConfigDict(regex_engine="python-re")

    name: str = Field(pattern=f"^(?!({'|'.join(COLUMNS)})$)[A-Za-z][A-Za-z0-9_]*$")  # no column of results.csv
    unit: str = ""
    range: tuple[float | None, float | None] = Field(default=(None, None), strict=False)  # JSON has no tuples
    higher_is_better: bool
    decimals: int = 4

    @property
    def key(self) -> str:
        return PREFIX + self.name

    @property
    def fp32_key(self) -> str:
        return f"{self.key}_fp32"

    @property
    def held_out_key(self) -> str:
        """On the part of the training data that was held out."""
        return f"{PREFIX}held_out_{self.name}"

    @property
    def derived_names(self) -> set[str]:
        """What records and results.csv call further figures of this metric: no other metric may have such a name."""
        return {f"{self.name}_fp32", f"held_out_{self.name}", f"{self.name}_sd", f"{self.name}_difference"}

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")

    @property
    def scale(self) -> float:
        """What a recorded value is multiplied by to be shown."""
        return 100.0 if self.unit == "%" and self.range == (0, 1) else 1.0

    @property
    def difference_unit(self) -> str:
        """The unit of a difference: two percentages differ by points."""
        return "points" if self.unit == "%" else self.unit

    @property
    def width(self) -> float | None:
        """From the lowest to the highest value; None for a metric without limits."""
        low, high = self.range
        return None if low is None or high is None else high - low

    def text(self, value: float) -> str:
        """`value` for readers, in its unit."""
        number = f"{self.scale * value:.{self.decimals}f}"
        return f"{number}%" if self.unit == "%" else f"{number} {self.unit}".rstrip()

    def impossible(self, value: float) -> bool:
        """Whether `value` lies outside the range."""
        low, high = self.range
        return (low is not None and value < low) or (high is not None and value > high)


ACCURACY = Metric(name="accuracy", unit="%", range=(0, 1), higher_is_better=True, decimals=2)
LOSS = Metric(name="loss", unit="nats", range=(0, None), higher_is_better=False)
PERPLEXITY = Metric(name="perplexity", range=(1, None), higher_is_better=False, decimals=2)
# Metrics of the records that do not declare theirs, which came before the declaration did.
UNDECLARED = (ACCURACY, LOSS, PERPLEXITY)


def undeclared(first: str | None, keys: Collection[str]) -> list[Metric]:
    """The metrics among `keys` of a record that declares none; `first` is the key of the one that decides."""
    known = [metric for metric in UNDECLARED if metric.key in keys]
    return sorted(known, key=lambda metric: metric.key != first)
