"""One run folder as evidence: its figures, or the reason why none of them may be counted."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from reports.environment_record import UNCOMMITTED, read_environment, sources
from reports.records import Part, is_number, read_as, read_lines

BASELINE = "fp32"
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


def read_run(folder: Path, precision: str, seed: int, publish: bool = False) -> dict[str, Any]:
    """The run `<precision>-s<seed>` under `folder` as plain values; its figures count where `status` is finished.

    Any other status has a `reason`: the run's own, or what is wrong with its record. Where the figures are to be
    published (`publish`), a smoke run and one of a source with uncommitted changes are wrong too.
    """
    name = f"{precision}-s{seed}"
    summary, status, reason = _read_summary(folder / name / "summary.json")
    if status == FINISHED and (fault := _fault(folder / name, summary, precision, seed, publish)):
        status, reason = FAILED, fault
    metric = summary.metric or ""
    return {
        "run": name,
        "experiment": summary.experiment,
        "precision": precision,
        "seed": seed,
        "status": status,
        "reason": reason,
        "value": summary.figure(metric),
        "value_fp32": summary.figure(metric if precision == BASELINE else f"{metric}_fp32"),
        "best": summary.best.get(metric),
        "samples_per_sec": summary.figure("throughput/samples_per_sec"),
        "compute_samples_per_sec": summary.figure("throughput/compute_samples_per_sec"),
        "data_wait_pct": summary.figure("time/data_wait_pct"),
        "peak_memory_mib": summary.figure("memory/peak_allocated_mib", "memory/peak_rss_mib"),
        "saved_for_backward_mib": summary.figure("memory/saved_for_backward_mib"),
        "skipped_steps": summary.skipped_steps,
        "nonfinite_loss_steps": summary.nonfinite_loss_steps,
        "arithmetic": summary.precision.effective.arithmetic,
        "smoke": summary.smoke,
        **{key: getattr(summary, key) for key in PAIRED},
    }


def _read_summary(path: Path) -> tuple[Summary, str, str | None]:
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


def _fault(path: Path, summary: Summary, precision: str, seed: int, publish: bool) -> str | None:
    """Why a finished run must not be counted; None where it may."""
    environment, fault = read_environment(path / "environment.json")
    if fault:
        return fault  # whether it was trained in one go is not known
    found = (summary.precision.requested, summary.precision.effective.name, summary.seed)
    if found != (precision, precision, seed):
        return f"its record is of precision {found[0]} (effective {found[1]}) and seed {found[2]}"
    ran = (environment.get("precision", {}).get("requested", precision), environment.get("seed", seed))
    if ran != (precision, seed):
        return f"its environment.json is of precision {ran[0]} and seed {ran[1]}"
    if publish and summary.experiment != path.parent.name:
        return f"its record is of the experiment {summary.experiment}"
    lengths = [attempt["changed"] for attempt in environment.get("attempts", []) if attempt.get("changed")]
    if any(key in change for change in lengths for key in ("epochs", "max_steps")):
        return f"trained in parts of different length: {lengths}; run it anew with --resume never"
    if publish and summary.smoke:
        return "a smoke run"
    if publish and not all(source.committed for source in sources(environment)):
        return f"its source {UNCOMMITTED}"
    return _misread(summary) or _unknown(summary) or _torn(path / "metrics.jsonl", summary)


def _misread(summary: Summary) -> str | None:
    """What is wrong with the metric of a summary."""
    metric, value = summary.metric, summary.final.get(summary.metric or "")
    if metric is None or value is None:
        return f"no {metric or 'metric'} in its record"
    if summary.higher_is_better is None:
        return f"whether a higher {metric} is better is not in its record"
    if isinstance(value, str) or not math.isfinite(value):
        return f"its {metric} is {value}"
    if metric == "eval/accuracy" and not 0 <= value <= 1:
        return f"its {metric} is {value}, not from 0 to 1"
    loss = summary.final.get("eval/loss", 0.0)
    if not isinstance(loss, int | float) or not math.isfinite(loss):
        return f"the evaluation loss of its final weights is {loss}"
    return None


def _unknown(summary: Summary) -> str | None:
    """What a pair is known by and the summary does not have, or which of its figures is none."""
    if missing := [key for key in PAIRED if getattr(summary, key) is None]:
        return f"no {missing[0]} in its record"
    for name in FIGURES:
        value = summary.final.get(name)
        if value is not None and (isinstance(value, str) or not 0 <= value < math.inf):
            return f"its {name} is {value}"
    return None


def _torn(path: Path, summary: Summary) -> str | None:
    """How metrics.jsonl is not the history that ends in the summary."""
    rows, torn = read_lines(path)
    if torn:
        return f"its metrics.jsonl has torn lines: {torn}"
    if not rows:
        return "its metrics.jsonl is missing or empty"
    for number, row in enumerate(rows, 1):
        if wrong := [key for key, value in row.items() if not is_number(value) and not key.endswith("/reason")]:
            return f"line {number} of its metrics.jsonl has no figure in {wrong[0]}"
    steps = [row["train/step"] for row in rows if "train/step" in row]
    if any(later < earlier for earlier, later in pairwise(steps)):
        return "its metrics.jsonl goes back to an earlier step"
    if summary.steps.attempted is not None and steps[-1:] != [summary.steps.attempted]:
        return f"its metrics.jsonl ends at step {steps[-1] if steps else 0} of {summary.steps.attempted}"
    metric = summary.metric or ""
    last = _last(rows, metric)
    if last != summary.final[metric]:
        return f"its last {metric} is {summary.final[metric]} in summary.json and {last} in metrics.jsonl"
    return None


def _last(rows: Sequence[Mapping[str, Any]], key: str) -> Any:
    return next((row[key] for row in reversed(rows) if key in row), None)
