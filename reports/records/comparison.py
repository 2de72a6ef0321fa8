"""comparison.json: all runs of an experiment, a row a precision, and its verdict."""

from typing import Literal, get_args

from pydantic import Field

from reports.records.benchmark import Benchmark
from reports.records.config import Experiment
from reports.records.environment import Environment, is_emulated
from reports.records.files import Schema
from reports.records.layout import BASELINE, run_name
from reports.records.metric import Metric
from reports.records.short_runs import ShortRuns
from reports.records.summary import FINISHED, Status, Summary

Verdict = Literal["EQUIVALENT", "WORSE", "BETTER", "INCONCLUSIVE"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
EQUIVALENT, WORSE, BETTER, INCONCLUSIVE = VERDICTS
DEFAULT_SEEDS = 3  # of a comparison


class Interval(Schema):
    """An estimate with its two-sided 95% interval."""

    value: float
    low: float
    high: float


class MetricResult(Schema):
    """A further metric of a precision: mean and standard deviation over seeds, mean paired difference vs FP32."""

    metric: Metric
    mean: float
    sd: float | None = None
    difference: float | None = None


class Speedup(Schema):
    """Speed over FP32, of so many process starts; one alone has no `interval`, since it does not repeat."""

    value: float
    interval: Interval | None = None
    starts: int = 1


class OperatorGrowth(Schema):
    """The operator whose time grew most over FP32, in ms a step; `fp32_ms` is None for one too short to be listed."""

    name: str
    fp32_ms: float | None
    ms: float


class RunResult(Schema):
    """One run: its figures count where `status` is finished; otherwise `reason` says why not.

    `value` is the deciding metric of the final weights. comparison.json does not repeat the run's own records.
    """

    precision: str
    seed: int
    status: Status
    reason: str | None = None
    value: float | None = None
    summary: Summary = Field(default_factory=Summary, exclude=True)
    environment: Environment | None = Field(default=None, exclude=True)
    config: Experiment | None = Field(default=None, exclude=True)

    @property
    def name(self) -> str:
        return run_name(self.precision, self.seed)

    @property
    def finished(self) -> bool:
        return self.status == FINISHED

    @property
    def metric(self) -> Metric | None:
        """The metric that decides."""
        return next(iter(self.summary.declared_metrics), None)

    @property
    def value_fp32(self) -> float | None:
        """`value`, where the same weights are evaluated in FP32."""
        if self.metric is None or self.precision == BASELINE:
            return self.value
        return self.summary.figure(self.metric.fp32_key)

    @property
    def train_seconds(self) -> float | None:
        """None after several attempts, of which each times itself alone."""
        return self.summary.attempt_seconds if self.environment and len(self.environment.attempts) == 1 else None


class Row(Schema):
    """One precision over its seeds. A figure that was not measured is None.

    `seeds` counts the runs in `mean` and `sd`, `pairs` those in `difference`, whose interval needs two of them.
    `margin` is in the metric's own unit. The verdict and `interval` are about the `eval_samples` at hand, `population`
    about new samples like these; it is None where the runs do not record which samples they get right. Speed is from
    the benchmark, memory from the runs; the peak of an emulated precision is from the short runs, where there are any.
    """

    experiment: str
    precision: str
    seeds: int
    pairs: int
    metric: Metric | None = None
    mean: float | None = None
    sd: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    population: Interval | None = None
    eval_samples: int | None = None
    margin: float | None = None
    verdict: Verdict | None = None
    looks: int = 1
    seeds_needed: int | None = None
    others: list[MetricResult] = []
    samples_per_sec: float | None = None
    speedup: Speedup | None = None
    slower_in: OperatorGrowth | None = None
    peak_memory_mib: float | None = None
    peak_ratio: float | None = None
    saved_for_backward_mib: float | None = None
    saved_ratio: float | None = None
    skipped_steps: int | None = None
    train_seconds: float | None = None
    device: str | None = None
    status: Status
    reason: str | None = None
    arithmetic: str | None = None

    @property
    def is_baseline(self) -> bool:
        return self.precision == BASELINE

    @property
    def emulated(self) -> bool:
        return is_emulated(self.arithmetic)


class Look(Schema):
    """The verdict of a precision was asked for with so many `pairs` and this `margin` of the configuration."""

    precision: str
    pairs: int
    margin: float
    verdict: Verdict | None = None


class Plan(Schema):
    """What a comparison is of; `margin` is the configuration's, `looks` how often a verdict is asked for at most.

    `looks_taken` are all so far, of earlier comparisons in the same folder too. `partial` says why a comparison ended
    before its runs did; it has no verdicts then. `config_sha256` is None in older records.
    """

    command: str
    margin: float = Field(gt=0, allow_inf_nan=False)
    looks: int = Field(default=1, gt=0)
    looks_taken: list[Look] = []
    partial: str | None = None
    config_sha256: str | None = None
    precisions: list[str] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)


class Comparison(Plan):
    """A plan and what follows from the run records; `commits`, `committed` and `torch` are of all finished runs.

    `not_recorded` names what at least one of them does not record and which is therefore not compared.
    """

    experiment: str
    smoke: bool = False
    rows: list[Row]
    runs: list[RunResult]
    benchmark: Benchmark | None = None
    short_runs: ShortRuns | None = None
    environment: Environment | None = None
    commits: list[str] = []
    committed: bool = False
    torch: list[str] = []
    not_recorded: list[str] = []

    @property
    def metric(self) -> Metric | None:
        """The metric that decides."""
        return next((row.metric for row in self.rows if row.metric), None)

    @property
    def config(self) -> Experiment | None:
        """The configuration of the first run that has one; None where comparison.json alone was read."""
        return next((run.config for run in self.runs if run.config), None)

    @property
    def succeeded(self) -> bool:
        """Whether every row is finished, with all of its seeds and its speed."""
        return all(row.status == FINISHED for row in self.rows)

    @property
    def mixed_rows(self) -> list[Row]:
        """The rows of the precisions that are compared with FP32."""
        return [row for row in self.rows if not row.is_baseline]

    def row(self, precision: str) -> Row | None:
        return next((row for row in self.rows if row.precision == precision), None)

    def runs_of(self, precision: str) -> list[RunResult]:
        return [run for run in self.runs if run.precision == precision]
