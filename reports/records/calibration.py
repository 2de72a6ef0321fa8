"""calibration.json: FP32 against FP32 with other seeds. speed_calibration.json: the speed of FP32 over itself."""

from typing import Annotated

from pydantic import ConfigDict, Field

from reports.records.environment import Machine
from reports.records.files import Schema

COMPARISONS = 12  # of accuracy, in a complete record
SPEED_STARTS = 120  # 40 measurements of three process starts each
Share = Annotated[float, Field(ge=0, le=1)]


class FromOneSource(Schema):
    """What all runs of such a record have in common."""

    model_config = ConfigDict(allow_inf_nan=False)

    experiment: str
    overrides: list[str] = []
    config_sha256: str | None = None
    smoke: bool
    environment: Machine

    @property
    def origin(self) -> dict[str, str | bool | float | None]:
        """What must be equal for the runs of two records to stand in one, by its name for readers."""
        return {
            "configuration (SHA-256)": self.config_sha256,
            "smoke": self.smoke,
            "device": self.environment.device.name,
            "torch": self.environment.versions.get("torch"),
            "commit": self.environment.git.commit,
        }


class Calibration(FromOneSource):
    """`accuracies` are of FP32 runs with seeds 0, 1, ..."""

    margin: float = Field(gt=0)
    pairs: int = Field(ge=2)
    eval_samples: int = Field(default=1, ge=1)
    accuracies: list[Share] = []


class SpeedCalibration(FromOneSource):
    """`log_ratios` are of FP32 over itself, one a process start, in the order in which they were measured."""

    block_seconds: float = Field(gt=0)
    log_ratios: list[float] = []

    @property
    def origin(self) -> dict[str, str | bool | float | None]:
        return super().origin | {"seconds of a block": self.block_seconds}
