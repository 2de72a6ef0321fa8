"""calibration.json: FP32 against FP32 with other seeds, and the speed of FP32 over itself."""

from typing import Annotated

from pydantic import ConfigDict, Field

from reports.records.benchmark import Seconds
from reports.records.environment import Machine
from reports.records.files import Schema

COMPARISONS = 12  # of accuracy and of speed, in a complete record
Share = Annotated[float, Field(ge=0, le=1)]


class PairedBlocks(Schema):
    """Seconds of the blocks of FP32 and of FP32 again, round by round."""

    first: list[Seconds] = Field(min_length=1)
    second: list[Seconds] = Field(min_length=1)


class Calibration(Schema):
    """`accuracies` are of FP32 runs with seeds 0, 1, ..."""

    model_config = ConfigDict(allow_inf_nan=False)

    experiment: str
    overrides: list[str] = []
    config_sha256: str | None = None
    smoke: bool
    margin: float = Field(gt=0)
    pairs: int = Field(ge=2)
    eval_samples: int = Field(default=1, ge=1)
    accuracies: list[Share] = []
    speed: list[PairedBlocks] = []
    environment: Machine
