"""memory.json: peak memory of short runs on a CPU, beside runs that do not record a right one."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from reports.records.environment import Source
from reports.records.files import Schema
from reports.records.layout import BASELINE

Peak = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ShortRuns(Schema):
    """`peaks_mib` holds by precision the `memory/peak_rss_mib` of each run, equally many: ratios are like to like.

    The runs are those of `config_sha256`, with the `overrides`, which make them `steps` long.
    """

    config_sha256: str
    overrides: list[str]
    steps: int = Field(gt=0)
    device: str
    torch: str
    git: Source
    peaks_mib: dict[str, Annotated[list[Peak], Field(min_length=1)]]

    @model_validator(mode="after")
    def _equally_many(self) -> Self:
        if len({len(peaks) for peaks in self.peaks_mib.values()}) > 1:
            raise ValueError("peaks_mib must have equally many runs of each precision")
        return self

    def peak(self, precision: str) -> float | None:
        """The largest of its runs in MiB; None where the precision was not measured."""
        return max(self.peaks_mib.get(precision, []), default=None)

    def ratio(self, precision: str) -> float | None:
        """The peak over FP32's; None where either was not measured."""
        own, baseline = self.peak(precision), self.peak(BASELINE)
        return None if own is None or baseline is None else own / baseline
