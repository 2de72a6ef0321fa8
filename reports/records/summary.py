"""summary.json: how a run ended, and its final figures."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, NonNegativeInt, PositiveInt

from reports.records.environment import RunPrecision
from reports.records.files import Schema, read_record
from reports.records.metric import Metric, undeclared

Status = Literal["finished", "failed", "diverged", "interrupted", "missing"]  # missing: no record at all
STATUSES: tuple[Status, ...] = get_args(Status)
FINISHED, FAILED, DIVERGED, INTERRUPTED, MISSING = STATUSES


class Steps(Schema):
    """`planned` and `attempted` optimizer steps, and those that were `applied`."""

    planned: int | None = None
    attempted: int | None = None
    applied: int | None = None


class Pretrained(Schema):
    """Where the initial weights came from, and how many tensors were `loaded`, `missing` or `unexpected`."""

    source: str
    loaded: int
    missing: int
    unexpected: int
    missing_names: list[str] = []


class Summary(Schema):
    """How a run ended; one that a signal killed has `status` and `reason` alone.

    The first of the `metrics` decides. `final` has the newest value of every figure, `best` the best of that metric.
    """

    status: Status = FAILED
    reason: str | None = None
    experiment: str | None = None
    config_sha256: str | None = None
    smoke: bool = False
    precision: RunPrecision = Field(default_factory=RunPrecision)
    seed: int | None = None
    device: str | None = None
    metric: str | None = None
    higher_is_better: bool | None = None
    metrics: list[Metric] = []
    final: dict[str, int | float | str | None] = {}
    best: dict[str, float | None] = {}
    steps: Steps = Field(default_factory=Steps)
    skipped_steps: NonNegativeInt | None = None
    nonfinite_loss_steps: NonNegativeInt | None = None
    parameters: int | None = None
    pretrained: Pretrained | None = None
    train_samples: PositiveInt | None = None
    eval_samples: PositiveInt | None = None
    warmup_steps: int | None = None
    attempt_seconds: float | None = None
    initial_weights_sha256: str | None = None
    data_order_sha256: str | None = None
    source_sha256: str | None = None
    data_sha256: str | None = None
    final_weights_sha256: str | None = None

    @property
    def declared_metrics(self) -> list[Metric]:
        """The metrics, the deciding one first; of a record without declarations, those that are known."""
        return self.metrics or undeclared(self.metric, self.final)

    def figure(self, *names: str) -> float | None:
        """The first of the final figures `names` that was measured."""
        values = (self.final.get(name) for name in names)
        return next((float(value) for value in values if isinstance(value, int | float)), None)


def read_summary(path: Path) -> Summary:
    """The record in `path`; where there is none or it is damaged, one that says so."""
    if not path.exists():
        return Summary(status=MISSING, reason="no summary.json: the run never began or was killed")
    try:
        return read_record(Summary, path)
    except ValueError as error:
        return Summary(status=FAILED, reason=str(error))
