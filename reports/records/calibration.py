"""calibration.json: FP32 against FP32 with other seeds, and the speed of FP32 over itself."""

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from reports.records.environment import Machine
from reports.records.files import Schema

COMPARISONS = 12  # of accuracy and of speed, in a complete record

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0)]


class PairedBlocks(Schema):
    """Seconds of the blocks of FP32 and of FP32 again, round by round."""

    first: list[Seconds] = Field(min_length=1)
    second: list[Seconds] = Field(min_length=1)

    @model_validator(mode="after")
    def _paired(self) -> "PairedBlocks":
        if len(self.first) != len(self.second):
            raise ValueError(f"{len(self.first)} blocks of first, {len(self.second)} of second")
        return self


class Calibration(Schema):
    """`accuracies` are of FP32 runs with seeds 0, 1, ...; `overrides` is None in a record that does not say."""

    model_config = ConfigDict(allow_inf_nan=False)

    experiment: str
    overrides: list[str] | None = None
    config_sha256: str | None = None
    smoke: bool
    margin: float = Field(gt=0)
    pairs: int = Field(ge=2)
    eval_samples: int = Field(default=1, ge=1)
    accuracies: list[Share] = []
    speed: list[PairedBlocks] = []
    environment: Machine
