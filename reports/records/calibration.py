"""What a calibration record must be before anything is counted in it."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from reports.records.environment import UNCOMMITTED, Source
from reports.records.files import Part, explain

COMPARISONS = 12

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0)]


class _Part(Part):
    # Of a calibration, no number may be other than finite.
    model_config = ConfigDict(allow_inf_nan=False)


class Blocks(_Part):
    """Seconds of the blocks of FP32 and of FP32 again, round by round."""

    first: list[Seconds] = Field(min_length=1)
    second: list[Seconds] = Field(min_length=1)

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.first) != len(self.second):
            raise ValueError(f"{len(self.first)} blocks of first, {len(self.second)} of second")
        return self


class Environment(_Part):
    """The parts of `train.experiment.environment.describe` on which the numbers depend; any may be missing."""

    git: Source = Field(default_factory=Source)
    device: dict[str, Any] = {}
    versions: dict[str, Any] = {}


class Record(_Part):
    """calibration.json. `overrides` is None in a record that does not say with which it was made."""

    experiment: str
    overrides: list[str] | None = None
    config_sha256: str | None = None
    smoke: bool
    margin: float = Field(gt=0)
    pairs: int = Field(ge=2)
    eval_samples: int = Field(ge=1)
    accuracies: list[Share]
    speed: list[Blocks]
    environment: Environment


def misfit(record: Mapping[str, Any]) -> str | None:
    """The first thing in `record` that makes it none of a calibration, in words; None for one that is."""
    try:
        Record.model_validate(record)
    except ValidationError as error:
        return explain(error)
    return None


def why_unfit(record: Mapping[str, Any] | None) -> str | None:
    """Why nothing may be counted in a record, None when it may."""
    if record is None:
        return "no readable record"
    try:
        found = Record.model_validate(record)
    except ValidationError as error:
        return f"left out, not a calibration record: {explain(error)}"
    if found.smoke:
        return "left out, a smoke run"
    if not found.environment.git.committed:
        return f"left out, their source {UNCOMMITTED}"
    done = {"accuracy": len(found.accuracies) // (2 * found.pairs), "speed": len(found.speed)}
    short = [f"{count} of {COMPARISONS} comparisons of {what}" for what, count in done.items() if count < COMPARISONS]
    return f"incomplete: {' and '.join(short)}" if short else None
