"""One run folder as evidence: its figures, or the reason why none of them counts."""

import math
from itertools import pairwise
from pathlib import Path

from reports.records import layout
from reports.records.comparison import RunResult
from reports.records.config import LENGTH, read_config
from reports.records.environment import UNCOMMITTED, Environment, read_environment
from reports.records.metrics import LOSS, STEP, read_history
from reports.records.summary import FAILED, FINISHED, Summary, read_summary


def read_run(folder: Path, precision: str, seed: int, publish: bool = False) -> RunResult:
    """The run of `precision` and `seed` in the experiment's `folder`; its figures count where it is finished.

    To `publish` them, its source must be a commit and it must not be a smoke run.
    """
    path = folder / layout.run_name(precision, seed)
    summary = read_summary(path / layout.SUMMARY)
    environment, fault = None, None
    try:
        environment = read_environment(path / layout.ENVIRONMENT)
    except ValueError as error:
        fault = str(error)
    status, reason = summary.status, summary.reason
    if status != FINISHED:
        reason = reason or f"its status is {status}"
    elif fault := fault or _fault(path, summary, environment, precision, seed, publish):
        status, reason = FAILED, fault
    metrics = summary.declared_metrics
    metric = metrics[0] if metrics else None
    return RunResult(
        precision=precision,
        seed=seed,
        status=status,
        reason=reason,
        experiment=summary.experiment,
        metrics=metrics,
        value=summary.figure(metric.key) if metric else None,
        value_fp32=summary.figure(metric.key if precision == layout.BASELINE else metric.fp32_key) if metric else None,
        best=summary.best.get(metric.key) if metric else None,
        others={m.key: value for m in metrics[1:] if (value := summary.figure(m.key)) is not None},
        samples_per_sec=summary.figure("throughput/samples_per_sec"),
        compute_samples_per_sec=summary.figure("throughput/compute_samples_per_sec"),
        data_wait_pct=summary.figure("time/data_wait_pct"),
        peak_memory_mib=summary.figure("memory/peak_allocated_mib", "memory/peak_rss_mib"),
        saved_for_backward_mib=summary.figure("memory/saved_for_backward_mib"),
        # Each of several attempts times itself alone.
        train_seconds=summary.attempt_seconds if environment and len(environment.attempts) == 1 else None,
        arithmetic=summary.precision.effective.arithmetic,
        **summary.model_dump(
            include={
                *("skipped_steps", "nonfinite_loss_steps", "smoke", "device", "eval_samples"),
                *("config_sha256", "initial_weights_sha256", "data_order_sha256"),
            }
        ),
    )


def _fault(
    path: Path, summary: Summary, environment: Environment | None, precision: str, seed: int, publish: bool
) -> str | None:
    """Why a finished run does not count; None where it does."""
    if environment is None:
        return "no environment.json: where it was trained is not known"
    recorded = (summary.precision.requested, summary.precision.effective.name, summary.seed)
    if recorded != (precision, precision, seed):
        return f"its record is of precision {recorded[0]} (effective {recorded[1]}) and seed {recorded[2]}"
    if environment.changed(LENGTH):
        return "trained in parts of different length; run it anew with --resume never"
    if publish and summary.smoke:
        return "a smoke run"
    if publish and not all(source.committed for source in environment.sources):
        return f"its source {UNCOMMITTED}"
    return _wrong_figure(summary) or _wrong_history(path, summary, environment)


def _wrong_figure(summary: Summary) -> str | None:
    """What in the final figures is no measurement."""
    if not summary.declared_metrics:
        return "no metric in its record"
    for metric in summary.declared_metrics:
        for key in (metric.key, metric.fp32_key, metric.held_out_key):
            value = summary.final.get(key)
            if value is None and key != summary.metric:
                continue
            if not isinstance(value, int | float) or not math.isfinite(value) or metric.impossible(value):
                return f"its {key} is {value}"
    if summary.steps.planned not in (None, summary.steps.attempted):
        return f"it finished after {summary.steps.attempted} of {summary.steps.planned} steps"
    return None


def _wrong_history(path: Path, summary: Summary, environment: Environment) -> str | None:
    """Where the lines of metrics.jsonl are not the steps of the run, in their order."""
    try:
        log_every = read_config(path / layout.CONFIG).log_every
    except ValueError as error:
        return str(error)
    history = read_history(path / layout.METRICS)
    if history.damaged or not history.rows:
        return f"its {layout.METRICS} is missing or damaged"
    steps = [row.get(STEP, math.nan) for row in history.rows]
    if any(not earlier <= later for earlier, later in pairwise(steps)) or steps[-1] != summary.steps.attempted:
        return f"its {layout.METRICS} does not follow the steps up to {summary.steps.attempted}"
    logged = [row[STEP] for row in history.rows_with(LOSS)]
    regular = not environment.changed({"log_every"})
    if regular and any(later - earlier > log_every for earlier, later in pairwise([0, *logged])):
        return f"its {layout.METRICS} lacks lines of the training"
    if any(later == earlier for earlier, later in pairwise(logged)):
        return f"its {layout.METRICS} has lines twice"
    return None
