"""What a run says of itself when it ends: summary.json, and what in it is no measurement."""

import math
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveInt

from reports.records.files import Part, is_number, read_as

FINISHED, FAILED, MISSING = "finished", "failed", "missing"
# Equal for all runs of one seed: a pair that began from other weights, saw other data, or was judged by another
# measure is no pair.
PAIRED = (
    *("initial_weights_sha256", "data_order_sha256", "config_sha256", "device"),
    *("metric", "higher_is_better", "eval_samples"),
)
# Final figures that are shown: 0 or more, where they were measured.
FIGURES = (
    *("throughput/samples_per_sec", "throughput/compute_samples_per_sec", "time/data_wait_pct"),
    *("memory/peak_allocated_mib", "memory/peak_rss_mib", "memory/saved_for_backward_mib"),
)


class Effective(Part):
    name: str | None = None
    arithmetic: str | None = None


class Precision(Part):
    requested: str | None = None
    effective: Effective = Field(default_factory=Effective)


class Steps(Part):
    planned: int | None = None
    attempted: int | None = None


class Summary(Part):
    """What is read of summary.json. A run that a signal killed leaves no more than its status and the reason."""

    status: str = FAILED
    reason: str | None = None
    experiment: str | None = None
    config_sha256: str | None = None
    smoke: bool = False
    precision: Precision = Field(default_factory=Precision)
    seed: int | None = None
    device: str | None = None
    metric: str | None = None
    higher_is_better: bool | None = None
    final: dict[str, float | str | None] = Field(default_factory=dict)
    best: dict[str, float | None] = Field(default_factory=dict)
    steps: Steps = Field(default_factory=Steps)
    skipped_steps: NonNegativeInt | None = None
    nonfinite_loss_steps: NonNegativeInt | None = None
    eval_samples: PositiveInt | None = None
    initial_weights_sha256: str | None = None
    data_order_sha256: str | None = None

    def figure(self, *names: str) -> float | None:
        """The first of the final figures `names` that was measured."""
        found = (self.final.get(name) for name in names)
        return next((float(value) for value in found if isinstance(value, int | float)), None)


def read_summary(path: Path) -> tuple[Summary, str, str | None]:
    """The summary, its status, and why that is another than finished."""
    if not path.exists():
        return Summary(), MISSING, "no summary.json: the run never began or was killed"
    try:
        summary = read_as(Summary, path, "one of a run")
    except ValueError as error:
        return Summary(), FAILED, f"its summary.json {error}"
    if summary.status == FINISHED:
        return summary, FINISHED, None
    return summary, summary.status, summary.reason or f"its status is {summary.status!r}"


def misread(summary: Summary) -> str | None:
    """Why the figures of a finished run's `summary` must not be counted; None where they may."""
    metric = summary.metric
    if metric is None or summary.final.get(metric) is None:
        return f"no {metric or 'metric'} in its record"
    if summary.higher_is_better is None:
        return f"whether a higher {metric} is better is not in its record"
    if missing := [key for key in PAIRED if getattr(summary, key) in (None, "")]:
        return f"no {missing[0]} in its record"
    for name in (metric, *filter(is_evaluation, summary.final)):
        figure = summary.final[name]
        if not is_number(figure) or not math.isfinite(figure):
            return f"its {name} is {figure}"
        if wrong := impossible(name, figure):
            return f"its {name} is {figure}, {wrong}"
    for name in FIGURES:
        figure = summary.final.get(name)
        if figure is not None and (not is_number(figure) or not 0 <= figure < math.inf):
            return f"its {name} is {figure}"
    planned, attempted = summary.steps.planned, summary.steps.attempted
    if attempted is None or planned not in (None, attempted):
        return f"it finished after {attempted} of {planned} steps"
    return None


def is_evaluation(name: str) -> bool:
    """Whether `name` is that of an accuracy or a loss of an evaluation, of whichever samples and weights."""
    return name.startswith("eval/") and ("accuracy" in name or "loss" in name)


def impossible(name: str, figure: float) -> str | None:
    """How an evaluation's `figure` is none that `name` can have; a loss may be infinite, or no number at all."""
    if "accuracy" in name and not 0 <= figure <= 1:
        return "not from 0 to 1"
    if "loss" in name and figure < 0:
        return "less than 0"
    return None
